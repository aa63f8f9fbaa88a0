#include "services/compute/local_reads.h"

#include <poll.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/observe/spans.h"

namespace k3::compute {

Result<LocalReads> LocalReads::open(std::span<const std::filesystem::path> files) {
  LocalReads reads;
  K3_ASSIGN(reads.engine_, ReadEngine::create({}));
  for (const std::filesystem::path& path : files) {
    K3_ASSIGN(reads.files_.emplace_back(), reads.engine_->add_file(path));
  }
  return reads;
}

void LocalReads::submit(ReadJob job) {
  for (ReadExtent& extent : job.extents) extent.file = files_.at(extent.file);
  engine_->submit(std::move(job));
}

Status LocalReads::wait(std::uint64_t id) {
  const spans::Scope span("wait for weights", static_cast<std::uint32_t>(id));
  const auto start = std::chrono::steady_clock::now();
  Status status = wait_for(id);
  waited_ns_ += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  return status;
}

Status LocalReads::wait_for(std::uint64_t id) {
  while (true) {
    for (ReadDone& done : engine_->take_done()) ended_[done.id] = std::move(done.status);
    if (const auto found = ended_.find(id); found != ended_.end()) {
      Status status = std::move(found->second);
      ended_.erase(found);
      return status;
    }
    pollfd done{.fd = engine_->done_fd(), .events = POLLIN, .revents = 0};
    if (::poll(&done, 1, -1) < 0 && errno != EINTR) {
      return fail(ErrorCode::kFailed, "waiting for a read: {}", std::strerror(errno));
    }
  }
}

}  // namespace k3::compute
