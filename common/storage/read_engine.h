// Reads of weights: jobs of several extents into one buffer, many in flight, completed over an
// eventfd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace k3 {

// One contiguous piece of a job.
struct ReadExtent {
  std::uint32_t file = 0;     // index returned by ReadEngine::add_file
  std::uint64_t offset = 0;   // in the file, bytes
  std::span<std::byte> into;  // borrowed until the job completes
};

struct ReadJob {
  std::uint64_t id = 0;  // the caller's, returned in ReadDone
  std::string label;     // "layer 3 expert 17": named in every error
  std::vector<ReadExtent> extents{};
  std::optional<std::uint64_t>
      checksum{};       // XXH3-64 of the extents in order; verified when present
  bool urgent = false;  // before all jobs that are not
};

struct ReadDone {
  std::uint64_t id = 0;
  Status status;  // kWeights naming label, file, offset and what was wrong
  std::uint64_t bytes = 0;
};

// Reads on its own threads. A failed read or a wrong checksum is tried once more before it is
// reported. Large extents are split so that all threads work on one job. submit and take_done
// belong to the caller's thread; destruction stops and joins the readers first.
class ReadEngine {
 public:
  struct Options {
    std::size_t threads = 8;
  };

  static Result<std::unique_ptr<ReadEngine>> create(Options options);
  ~ReadEngine();

  // Opens a file for reading; errors name it.
  Result<std::uint32_t> add_file(const std::filesystem::path& path);

  void submit(ReadJob job);

  // Readable while take_done() would return something.
  int done_fd() const;
  std::vector<ReadDone> take_done();

 private:
  struct State;
  explicit ReadEngine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace k3
