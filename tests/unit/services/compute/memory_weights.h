// Weight sources for tests: whole models in memory as fp32, delivered in blocks of any size,
// experts in any order, with failures on request.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/checkpoint/model_config.h"
#include "common/checkpoint/trunk_order.h"
#include "services/compute/weight_source.h"

namespace k3::compute::test {

// Tensors by the names of tiny_k3.json ("layers_3_self_attn_q_a_proj_weight"), row-major.
using TensorMap = std::map<std::string, std::vector<float>>;

// The name a trunk tensor has there.
std::string tiny_name(const TrunkTensor& tensor);

class MemoryTrunk : public TrunkReader {
 public:
  // Borrowed. Blocks hold at most `block_rows` rows, rounded up to a whole row group.
  MemoryTrunk(const std::vector<TrunkTensor>& order, const TensorMap& weights,
              std::uint32_t block_rows);

  Status begin_pass(bool with_head, bool another_follows) override;
  Result<TrunkBlock> block() override;
  void done() override;
  void abandon() override;
  Result<EmbeddingRows> embedding(std::span<const std::int32_t> ids) override;
  std::uint64_t waited_ns() const override { return 0; }

  // The first block of this tensor is an error, once.
  void fail_once(std::string name) { failing_ = std::move(name); }
  int head_passes() const { return head_passes_; }
  int passes() const { return passes_; }
  int abandoned() const { return abandoned_; }

 private:
  const std::vector<TrunkTensor>& order_;
  const TensorMap& weights_;
  std::uint32_t block_rows_;
  std::uint32_t tensor_ = 0;
  std::uint32_t row_ = 0;
  std::uint32_t rows_ = 0;  // of the block last returned
  std::string failing_;
  int passes_ = 0;
  int head_passes_ = 0;
  int abandoned_ = 0;
};

class MemoryExperts : public ExpertReader {
 public:
  enum class Order { kAscending, kDescending };

  MemoryExperts(const ModelConfig& config, const TensorMap& weights, Order order);

  Status fetch(int layer, std::span<const std::uint32_t> experts) override;
  Result<ExpertView> next() override;
  void release() override { pending_.clear(); }
  std::uint64_t waited_ns() const override { return 0; }

  // The next expert of this layer is an error, once.
  void fail_once_in(int layer) { failing_layer_ = layer; }
  bool leased() const { return !pending_.empty(); }

 private:
  kernels::Matrix matrix(std::uint32_t expert, const char* part, int rows, int cols) const;

  const ModelConfig& config_;
  const TensorMap& weights_;
  Order order_;
  int layer_ = 0;
  int failing_layer_ = -1;
  std::vector<std::uint32_t> pending_;
};

}  // namespace k3::compute::test
