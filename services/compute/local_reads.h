// Reads of weights from files that the caller waits for, job by job.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/storage/read_engine.h"

namespace k3::compute {

// One thread.
class LocalReads {
 public:
  // Opens `files`; extents name them by their place in this list. Errors name the file.
  static Result<LocalReads> open(std::span<const std::filesystem::path> files);

  // Starts a job; its id is of none under way. Its buffers are borrowed until wait() has returned
  // for it, or this is destroyed.
  void submit(ReadJob job);

  // Waits for a job submitted and gives its end, once. Errors: kWeights, the job's own; kFailed.
  Status wait(std::uint64_t id);

  // Wall clock spent in wait() so far.
  std::uint64_t waited_ns() const { return waited_ns_; }

 private:
  LocalReads() = default;
  Status wait_for(std::uint64_t id);

  std::unique_ptr<ReadEngine> engine_;
  std::vector<std::uint32_t> files_;
  std::map<std::uint64_t, Status> ended_;  // not waited for yet
  std::uint64_t waited_ns_ = 0;
};

}  // namespace k3::compute
