#include "services/experts_pagecache/page_loader.h"

#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/base/unique_fd.h"

namespace k3::pagecache {
namespace {

constexpr int kTries = 2;

// Whole pages around a run, as the calls below want them.
struct Pages {
  void* begin = nullptr;
  std::size_t bytes = 0;
};

std::uintptr_t page_bytes() {
  static const auto bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

Pages pages_of(std::span<const std::byte> run) {
  const std::size_t before = reinterpret_cast<std::uintptr_t>(run.data()) % page_bytes();
  return {const_cast<std::byte*>(run.data()) - before, before + run.size()};
}

std::uint64_t absent_bytes(const Pages& pages) {
  std::vector<unsigned char> present((pages.bytes + page_bytes() - 1) / page_bytes());
  if (::mincore(pages.begin, pages.bytes, present.data()) != 0) return 0;
  const auto absent = std::ranges::count_if(present, [](auto page) { return (page & 1) == 0; });
  return static_cast<std::uint64_t>(absent) * page_bytes();
}

// Returns when every page is in memory. The kernel reports what would otherwise be SIGBUS.
bool populate(const Pages& pages) {
  for (int tried = 0; tried < kTries;) {
    if (::madvise(pages.begin, pages.bytes, MADV_POPULATE_READ) == 0) return true;
    if (errno != EINTR && errno != EAGAIN) ++tried;
  }
  return false;
}

LoadDone load(const LoadJob& job) {
  LoadDone done{job.id, 0, {}};
  std::vector<Pages> runs;
  for (const auto& run : job.runs) runs.push_back(pages_of(run));
  for (const Pages& run : runs) done.bytes_absent += absent_bytes(run);
  // All reads begin before the first is waited for.
  for (const Pages& run : runs) ::madvise(run.begin, run.bytes, MADV_WILLNEED);
  for (std::size_t i = 0; i < runs.size() && !done.failed_run; ++i) {
    if (!populate(runs[i])) done.failed_run = i;
  }
  // Out of our own page tables, not out of the page cache: only its users shall keep a page there.
  for (const Pages& run : runs) ::madvise(run.begin, run.bytes, MADV_DONTNEED);
  return done;
}

Status check_kernel() {
  void* page = ::mmap(nullptr, page_bytes(), PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail(ErrorCode::kFailed, "mmap: {}", std::strerror(errno));
  const int error = ::madvise(page, page_bytes(), MADV_POPULATE_READ) == 0 ? 0 : errno;
  ::munmap(page, page_bytes());
  if (error == 0) return {};
  return fail(ErrorCode::kFailed, "MADV_POPULATE_READ: {}; Linux 5.14 has it",
              std::strerror(error));
}

}  // namespace

struct PageLoader::State {
  UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex;  // guards what follows
  std::condition_variable work;
  std::deque<LoadJob> urgent;
  std::deque<LoadJob> patient;
  std::vector<LoadDone> done;
  bool stopping = false;
  std::vector<std::thread> threads;  // the caller's

  ~State();
  void run();
};

PageLoader::State::~State() {
  {
    const std::lock_guard lock(mutex);
    stopping = true;
  }
  work.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void PageLoader::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [this] { return stopping || !urgent.empty() || !patient.empty(); });
    if (stopping) return;
    std::deque<LoadJob>& queue = urgent.empty() ? patient : urgent;
    const LoadJob job = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    const LoadDone ended = load(job);
    lock.lock();
    done.push_back(ended);
    const std::uint64_t one = 1;
    K3_CHECK(::write(event.get(), &one, sizeof(one)) == sizeof(one), std::strerror(errno));
  }
}

Result<std::unique_ptr<PageLoader>> PageLoader::create(std::size_t threads) {
  K3_TRY(check_kernel());
  auto state = std::make_unique<State>();
  if (!state->event.valid()) {
    return fail(ErrorCode::kFailed, "eventfd: {}", std::strerror(errno));
  }
  for (std::size_t i = 0; i < threads; ++i) {
    state->threads.emplace_back([raw = state.get()] { raw->run(); });
  }
  return std::unique_ptr<PageLoader>(new PageLoader(std::move(state)));
}

PageLoader::PageLoader(std::unique_ptr<State> state) : state_(std::move(state)) {}
PageLoader::~PageLoader() = default;

void PageLoader::submit(LoadJob job) {
  {
    const std::lock_guard lock(state_->mutex);
    (job.urgent ? state_->urgent : state_->patient).push_back(std::move(job));
  }
  state_->work.notify_one();
}

int PageLoader::done_fd() const { return state_->event.get(); }

std::vector<LoadDone> PageLoader::take_done() {
  const std::lock_guard lock(state_->mutex);
  std::uint64_t count = 0;
  // Nothing to read when nothing has ended.
  [[maybe_unused]] const ssize_t got = ::read(state_->event.get(), &count, sizeof(count));
  return std::exchange(state_->done, {});
}

}  // namespace k3::pagecache
