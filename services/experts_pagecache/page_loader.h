// Brings bytes of mapped files into the page cache, on threads of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/base/result.h"

namespace k3::pagecache {

struct LoadJob {
  std::uint64_t id = 0;                            // the caller's, returned in LoadDone
  std::vector<std::span<const std::byte>> runs{};  // of mapped files, mapped until it is done
  bool urgent = false;                             // before all jobs that are not
};

struct LoadDone {
  std::uint64_t id = 0;
  std::uint64_t bytes_absent = 0;         // of the pages that were not in memory
  std::optional<std::size_t> failed_run;  // the first that cannot be read, tried twice
};

// submit and take_done belong to the caller's thread; destruction joins the threads, jobs that have
// not begun are forgotten.
class PageLoader {
 public:
  // kFailed when the kernel lacks MADV_POPULATE_READ (Linux 5.14).
  static Result<std::unique_ptr<PageLoader>> create(std::size_t threads);
  ~PageLoader();

  void submit(LoadJob job);
  // Readable while take_done() would return something.
  int done_fd() const;
  std::vector<LoadDone> take_done();

 private:
  struct State;
  explicit PageLoader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace k3::pagecache
