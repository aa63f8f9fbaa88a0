// Embedding rows by token id: one read a row, answered when the last of a request has come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/trunk_order.h"
#include "common/ipc/messages.h"
#include "common/storage/read_engine.h"

namespace k3::trunk {

// Pure bookkeeping: the caller submits the jobs. One thread. Owns the buffers being read into, so
// it must outlive the reader of its jobs.
class EmbeddingRows {
 public:
  using ClientId = std::uint64_t;

  struct Answer {
    ClientId client = 0;
    std::uint64_t in_reply_to = 0;
    ipc::Message body;  // Rows, or ErrorReply naming the first token id that could not be read
  };

  static constexpr std::size_t kMaxIds = 4096;         // of one request
  static constexpr std::size_t kMaxOpenRequests = 16;  // of all clients

  // The table is row-major [vocab, hidden], F32 or BF16 (kWeights otherwise), in `file` of the read
  // engine; `checksums` by token id, or empty. Job ids are kFirstJobId and above.
  static Result<EmbeddingRows> create(const TensorPlace& table, std::uint32_t file,
                                      std::vector<std::uint64_t> checksums);
  static constexpr std::uint64_t kFirstJobId = std::uint64_t{1} << 63;

  // The reads for one request. kUsage for no or too many ids, an id outside the vocabulary, or too
  // many open requests.
  Result<std::vector<ReadJob>> begin(ClientId client, std::uint64_t sequence,
                                     std::span<const std::int32_t> ids);

  // Takes the end of one read; the answer, when it was the last of its request.
  std::optional<Answer> read_done(const ReadDone& done);

 private:
  struct Request {
    ClientId client = 0;
    std::uint64_t sequence = 0;
    std::size_t reads_left = 0;
    std::optional<std::pair<std::size_t, Error>> failure;  // of the lowest index
    std::vector<std::byte> data;
  };

  EmbeddingRows() = default;

  std::uint32_t file_ = 0;
  std::uint64_t table_offset_ = 0;
  std::uint32_t row_bytes_ = 0;
  std::uint64_t vocab_ = 0;
  TrunkEncoding encoding_ = TrunkEncoding::kRawBf16;
  std::vector<std::uint64_t> checksums_;       // XXH3-64 by token id; empty when there are none
  std::map<std::uint64_t, Request> requests_;  // by number
  std::uint64_t next_request_ = 0;
};

}  // namespace k3::trunk
