// Generated ids to text on stdout, as they arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "tools/k3/pipeline_link.h"

namespace k3::cli {

// Prints through the tokenizer service, whole characters only; without a vocabulary it prints ids
// separated by spaces. One thread.
class TextStream {
 public:
  TextStream(PipelineLink& link, bool has_vocabulary)
      : link_(link), has_vocabulary_(has_vocabulary) {}

  // Prints what `id` completes and returns it. kOutput when stdout takes no more; on any other
  // error the id is kept for the next call.
  Result<std::string> push(std::int32_t id);

  // Prints what is left, however incomplete, and ends the line. kOutput as push().
  Status finish();

  // All text so far, printed or not; nothing without a vocabulary.
  std::optional<std::string> text() const;

 private:
  Result<std::string> take(ipc::Decoded decoded);

  PipelineLink& link_;
  bool has_vocabulary_;
  std::vector<std::int32_t> undecoded_;
  std::string pending_;  // bytes of an unfinished character
  std::string text_;
  bool first_ = true;
};

}  // namespace k3::cli
