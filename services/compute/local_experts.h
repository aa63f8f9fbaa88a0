// Routed experts from the model's own shards, read by this process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/aligned.h"
#include "common/base/result.h"
#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/model_config.h"
#include "services/compute/local_reads.h"
#include "services/compute/weight_source.h"

namespace k3::compute {

// Keeps no expert: a few are read ahead of the one in use, in the order asked for, which is the
// order of arrival. Checksums are verified where the index has them. Errors: kWeights naming layer,
// expert and file.
class LocalExperts final : public ExpertReader {
 public:
  // Experts held: the one in use and those being read, enough to keep the reader's threads busy.
  static constexpr std::size_t kBuffers = 8;

  // `index` is of the model of `config`, which is borrowed.
  static Result<std::unique_ptr<LocalExperts>> open(const ModelConfig& config, ExpertIndex index);
  ~LocalExperts() override;

  Status fetch(int layer, std::span<const std::uint32_t> experts) override;
  Result<ExpertView> next() override;
  void release() override;
  std::uint64_t waited_ns() const override { return reads_.waited_ns(); }

 private:
  using Buffer = std::vector<std::byte, CacheLineAllocator<std::byte>>;

  LocalExperts(const ModelConfig& config, ExpertIndex index, LocalReads reads);
  void read_ahead();
  Buffer& buffer(std::size_t place) { return buffers_[place % buffers_.size()]; }

  const ModelConfig& config_;
  ExpertIndex index_;
  std::vector<Buffer> buffers_;
  int layer_ = 0;
  std::vector<std::uint32_t> experts_;  // asked for
  std::size_t requested_ = 0;           // reads of these first were started
  std::size_t taken_ = 0;               // these first have arrived and were handed out
  LocalReads reads_;                    // last: its readers end before the buffers do
};

}  // namespace k3::compute
