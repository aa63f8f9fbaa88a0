// What the user reads: the result on stdout, all else on stderr.
#pragma once

#include <string_view>

#include "common/base/result.h"

namespace k3::cli {

// Makes sure that descriptors 0 to 2 are taken, so that no file or socket opened later gets the
// number of a closed stdout and receives its text; writing to one that was closed still fails.
// Lets a write to a pipe whose reader has gone fail instead of ending the process (SIGPIPE). Call
// once, from main, before anything is opened.
void claim_terminal();

// `text` to stderr, as it is. When nobody can read it, nothing happens: a message changes no
// result. Any thread.
void tell(std::string_view text) noexcept;

// `text` to stdout at once. kOutput naming stdout and the reason.
Status print_now(std::string_view text);

// Whether all that was printed to stdout so far has arrived; kOutput as print_now().
Status flush_stdout();

}  // namespace k3::cli
