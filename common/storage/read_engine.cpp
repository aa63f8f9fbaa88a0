// Reader threads, two queues of pieces, one retry; see read_engine.h.
#include "common/storage/read_engine.h"

#include <fcntl.h>
#include <sys/eventfd.h>
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
#include "common/base/file.h"
#include "common/base/unique_fd.h"
#include "common/observe/spans.h"
#include "common/storage/read_faults.h"
#include "common/storage/streaming_checksum.h"

namespace k3 {
namespace {

// Small enough that the readers share one expert, large enough to keep a disk streaming.
constexpr std::size_t kPieceBytes = std::size_t{8} << 20;
static_assert(kPieceBytes <= kMaxTransferBytes);
constexpr int kAttempts = 2;

struct OpenFile {
  std::filesystem::path path;
  UniqueFd fd;
};

// A job under way. Its buffers are written by readers without the lock; everything else is guarded
// by State::mutex.
struct Job {
  ReadJob request;
  const OpenFile* first_file = nullptr;  // named in errors that concern the whole job
  std::uint64_t bytes = 0;
  std::size_t pieces_left = 0;
  int attempt = 1;
  Status status;
};

struct Piece {
  std::shared_ptr<Job> job;
  const OpenFile* file = nullptr;
  std::uint64_t offset = 0;
  std::span<std::byte> into;
};

std::uint64_t checksum_of(const std::vector<ReadExtent>& extents) {
  StreamingChecksum sum;
  for (const ReadExtent& extent : extents) sum.add(extent.into);
  return sum.value();
}

Status read_piece(const Piece& piece) {
  const spans::Scope span("read", static_cast<std::uint32_t>(piece.job->request.id));
  return read_exactly(piece.file->fd.get(), piece.offset, piece.into, piece.file->path);
}

}  // namespace

struct ReadEngine::State {
  std::mutex mutex;
  std::condition_variable work;
  bool stopping = false;
  std::deque<OpenFile> files;  // a deque: readers hold pointers while files are added
  std::deque<Piece> urgent;
  std::deque<Piece> normal;
  std::vector<ReadDone> done;
  UniqueFd done_event;
  std::optional<ReadFaults> faults = ReadFaults::from_environment();
  std::vector<std::thread> readers;

  // The following need the mutex.
  Status check_request(const ReadJob& request) const;
  void enqueue(const std::shared_ptr<Job>& job);
  void report(const ReadJob& request, Status status, std::uint64_t bytes);

  // The following are the reader threads' and take the mutex themselves.
  void read_until_stopped();
  void finish_attempt(const std::shared_ptr<Job>& job);
  Status verify(const Job& job) const;
};

Status ReadEngine::State::check_request(const ReadJob& request) const {
  if (request.extents.empty()) {
    return fail(ErrorCode::kWeights, "{}: nothing to read", request.label);
  }
  for (const ReadExtent& extent : request.extents) {
    if (extent.file >= files.size()) {
      return fail(ErrorCode::kWeights, "{}: file number {} of {} open files", request.label,
                  extent.file, files.size());
    }
    if (extent.into.empty()) {
      return fail(ErrorCode::kWeights, "{}: {}: empty extent at {}", request.label,
                  files[extent.file].path.string(), extent.offset);
    }
  }
  return {};
}

void ReadEngine::State::enqueue(const std::shared_ptr<Job>& job) {
  std::deque<Piece>& queue = job->request.urgent ? urgent : normal;
  for (const ReadExtent& extent : job->request.extents) {
    for (std::size_t at = 0; at < extent.into.size(); at += kPieceBytes) {
      const std::size_t bytes = std::min(kPieceBytes, extent.into.size() - at);
      queue.push_back(
          Piece{job, &files[extent.file], extent.offset + at, extent.into.subspan(at, bytes)});
      ++job->pieces_left;
    }
  }
  work.notify_all();
}

void ReadEngine::State::report(const ReadJob& request, Status status, std::uint64_t bytes) {
  done.push_back(ReadDone{request.id, std::move(status), bytes});
  const std::uint64_t one = 1;
  const ssize_t put = ::write(done_event.get(), &one, sizeof one);
  K3_CHECK(put == sizeof one, std::strerror(errno));
}

void ReadEngine::State::read_until_stopped() {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [&] { return stopping || !urgent.empty() || !normal.empty(); });
    if (stopping) return;
    std::deque<Piece>& queue = urgent.empty() ? normal : urgent;
    const Piece piece = std::move(queue.front());
    queue.pop_front();
    Job& job = *piece.job;
    if (job.status) {  // once a piece has failed the others need no reading
      lock.unlock();
      Status status = read_piece(piece);
      lock.lock();
      if (!status && job.status) job.status = std::move(status);
    }
    if (--job.pieces_left > 0) continue;
    lock.unlock();
    finish_attempt(piece.job);
    lock.lock();
  }
}

// The one thread that read the job's last piece comes here; no other touches the job any more.
void ReadEngine::State::finish_attempt(const std::shared_ptr<Job>& job) {
  Status status = std::move(job->status);
  if (status) status = verify(*job);
  const std::scoped_lock lock(mutex);
  if (!status && job->attempt < kAttempts) {
    ++job->attempt;
    job->status = {};
    enqueue(job);
    return;
  }
  if (!status) {
    status = fail(ErrorCode::kWeights, "{}: {} ({} attempts)", job->request.label,
                  status.error().message, job->attempt);
  }
  report(job->request, std::move(status), job->bytes);
}

Status ReadEngine::State::verify(const Job& job) const {
  const spans::Scope span("verify", static_cast<std::uint32_t>(job.request.id));
  const ReadExtent& first = job.request.extents.front();
  const auto describe = [&](const std::string& reason) {
    return fail(ErrorCode::kWeights, "{}: {} bytes at {}: {}", job.first_file->path.string(),
                job.bytes, first.offset, reason);
  };
  if (faults) {
    const Status injected = faults->apply(job.request.label, first.into);
    if (!injected) return describe(injected.error().message);
  }
  if (!job.request.checksum) return {};
  const std::uint64_t found = checksum_of(job.request.extents);
  if (found == *job.request.checksum) return {};
  return describe(fmt::format("checksum {:016x}, expected {:016x}", found, *job.request.checksum));
}

Result<std::unique_ptr<ReadEngine>> ReadEngine::create(Options options) {
  if (options.threads == 0) return fail(ErrorCode::kUsage, "0 reader threads, at least 1 needed");
  auto state = std::make_unique<State>();
  state->done_event.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!state->done_event.valid()) {
    return fail(ErrorCode::kFailed, "eventfd: {}", std::strerror(errno));
  }
  for (std::size_t i = 0; i < options.threads; ++i) {
    state->readers.emplace_back([raw = state.get()] { raw->read_until_stopped(); });
  }
  return std::unique_ptr<ReadEngine>(new ReadEngine(std::move(state)));
}

ReadEngine::ReadEngine(std::unique_ptr<State> state) : state_(std::move(state)) {}

ReadEngine::~ReadEngine() {
  // Readers use the files and the event until they are joined: stop them before anything closes.
  {
    const std::scoped_lock lock(state_->mutex);
    state_->stopping = true;
  }
  state_->work.notify_all();
  for (std::thread& reader : state_->readers) reader.join();
}

Result<std::uint32_t> ReadEngine::add_file(const std::filesystem::path& path) {
  K3_ASSIGN(UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
  const std::scoped_lock lock(state_->mutex);
  state_->files.push_back(OpenFile{path, std::move(fd)});
  return static_cast<std::uint32_t>(state_->files.size() - 1);
}

void ReadEngine::submit(ReadJob request) {
  const std::scoped_lock lock(state_->mutex);
  if (Status legal = state_->check_request(request); !legal) {
    state_->report(request, std::move(legal), 0);
    return;
  }
  const auto job = std::make_shared<Job>();
  job->request = std::move(request);
  job->first_file = &state_->files[job->request.extents.front().file];
  for (const ReadExtent& extent : job->request.extents) job->bytes += extent.into.size();
  state_->enqueue(job);
}

int ReadEngine::done_fd() const { return state_->done_event.get(); }

std::vector<ReadDone> ReadEngine::take_done() {
  const std::scoped_lock lock(state_->mutex);
  std::uint64_t count = 0;
  const ssize_t got = ::read(state_->done_event.get(), &count, sizeof count);
  K3_CHECK(got == sizeof count || errno == EAGAIN, std::strerror(errno));
  return std::exchange(state_->done, {});
}

}  // namespace k3
