// Where every tensor of a checkpoint lies, filled from the index and the shard headers and then
// checked against the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_config.h"
#include "common/checkpoint/safetensors.h"

namespace k3 {

enum class TensorUse {
  kUsed,
  kUnused,   // of a layer that is not in use, or not of the language model
  kUnknown,  // claims to be of the language model, but no such tensor exists
};

// Experts are found by their numbers, all others by name: half a million expert names are neither
// stored nor compared. One thread until it is filled, any afterwards.
class TensorTable {
 public:
  // `model` is the whole model, of which the first `layers` layers are in use.
  TensorTable(const std::filesystem::path& directory, const ModelConfig& model, int layers);

  TensorUse use_of(std::string_view name) const;

  // Returns the shard's number.
  std::uint32_t add_shard(std::filesystem::path path);

  // The index says that `name` lies in `shard`. After the first call, merge() accepts listed
  // tensors only.
  Status list(std::string_view name, std::uint32_t shard);

  // Enters the tensors of a shard. Errors: kWeights for a tensor that is unknown, in two shards, or
  // elsewhere than listed.
  Status merge(std::uint32_t shard, ShardHeader header);

  // Every listed tensor has been found, and every tensor in use is there with a legal dtype and its
  // exact shape; else kWeights naming the tensor, for experts with layer and expert.
  Status check() const;

  const std::vector<Shard>& shards() const { return shards_; }
  // A tensor in use; nothing when there is none of this name.
  const TensorPlace* find(std::string_view name) const;
  const TensorPlace& expert(int layer, int expert, ExpertPart part) const;

  // All tensors found that are (or are not) in use, in name order.
  std::vector<Checkpoint::NamedTensor> named(bool in_use) const;

 private:
  struct Slot {
    TensorPlace place;  // while only listed, just the shard is known
    bool listed = false;
    bool found = false;
  };
  struct TrunkSlot : Slot {
    int layer = -1;
  };
  using LayerExperts = std::vector<Slot>;  // [expert * kExpertParts + part]

  // Creates the slot of an expert or a foreign tensor at need; null for an unknown name.
  Slot* slot(std::string_view name);
  Status check_listed_found() const;
  Status check_trunk() const;
  Status check_experts(int layer) const;
  void for_each_expert(
      int layer, const std::function<void(std::string_view name, const Slot& slot)>& body) const;

  std::filesystem::path directory_;
  ModelConfig model_;
  int layers_;
  bool indexed_ = false;
  std::vector<Shard> shards_;
  std::map<std::string, TrunkSlot, std::less<>> trunk_;  // the embedding included
  std::vector<LayerExperts> experts_;  // [layer]; empty until one of the layer is met
  std::map<std::string, Slot, std::less<>> foreign_;
};

}  // namespace k3
