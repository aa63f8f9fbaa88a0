// One message of every type, no field at its default, with its wire content as text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "common/ipc/codec.h"
#include "common/ipc/messages.h"

namespace k3::ipc::test {

struct Sample {
  Message message;
  // What Cap'n Proto prints for the body's member, written by hand from proto/*.capnp.
  std::string text;
};

std::vector<Sample> samples();

// The header all sample frames carry.
Header sample_header();

// A frame's protocol version as messages show it, once its major version was changed to `major`.
inline std::string version(unsigned major) { return fmt::format("{}.{}", major, kProtocolMinor); }

}  // namespace k3::ipc::test
