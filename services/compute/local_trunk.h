// The trunk from the model's own files, read by this process.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/aligned.h"
#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/trunk_order.h"
#include "common/checkpoint/unit_table.h"
#include "services/compute/local_reads.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// Holds two units, one in use and one being read; each is read again in every pass. Unit and row
// checksums are verified where the table has them. Errors: kWeights naming unit or token, and file.
class LocalTrunk final : public TrunkReader {
 public:
  // `table` was made from `checkpoint`, over its shards or a packed file.
  static Result<std::unique_ptr<LocalTrunk>> open(const Checkpoint& checkpoint, UnitTable table);
  ~LocalTrunk() override;

  // Reads nothing ahead for a pass that follows.
  Status begin_pass(bool with_head, bool another_follows) override;
  Result<TrunkBlock> block() override;
  void done() override;
  void abandon() override;
  // kUsage for an id outside the vocabulary.
  Result<EmbeddingRows> embedding(std::span<const std::int32_t> ids) override;
  std::uint64_t waited_ns() const override { return reads_.waited_ns(); }

 private:
  using Buffer = std::vector<std::byte, CacheLineAllocator<std::byte>>;

  LocalTrunk(const Checkpoint& checkpoint, UnitTable table, LocalReads reads,
             TensorPlace embedding);
  void read_unit(std::size_t unit);
  Buffer& buffer(std::size_t unit) { return buffers_[unit % buffers_.size()]; }

  std::vector<TrunkTensor> order_;
  UnitTable table_;
  std::uint64_t vocab_;
  TensorPlace embedding_;
  std::array<Buffer, 2> buffers_;
  std::size_t unit_ = 0;       // in use
  std::size_t block_ = 0;      // of it, the next to use
  std::size_t requested_ = 0;  // reads of units below were started in this pass
  std::size_t arrived_ = 0;    // units below have arrived
  std::size_t end_ = 0;        // of the pass
  LocalReads reads_;           // last: its readers end before the buffers do
};

}  // namespace k3::compute
