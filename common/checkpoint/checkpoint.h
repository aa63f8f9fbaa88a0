// A checkpoint directory: configuration, shards, every tensor's place, checked against the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/model_config.h"
#include "common/checkpoint/safetensors.h"

namespace k3 {

struct Shard {
  std::filesystem::path path;
  std::uint64_t file_bytes = 0;
};

// Where one tensor lies.
struct TensorPlace {
  std::uint32_t shard = 0;  // index into Checkpoint::shards()
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  std::uint64_t offset = 0;  // in the shard file
  std::uint64_t bytes = 0;
};

// The six tensors of a routed expert, in slot and message order.
enum class ExpertPart { kW1Packed, kW1Scale, kW2Packed, kW2Scale, kW3Packed, kW3Scale };
inline constexpr int kExpertParts = 6;

// Bytes of each part for a model, and their sum.
std::uint64_t expert_part_bytes(const ModelConfig& config, ExpertPart part);
std::uint64_t expert_bytes(const ModelConfig& config);

// "language_model.model.layers.3.block_sparse_moe.experts.17.w1.weight_packed"
std::string expert_tensor_name(int layer, int expert, ExpertPart part);

// Opened once at start; immutable afterwards, any thread may read.
class Checkpoint {
 public:
  struct Options {
    std::optional<int> layers;  // use only the first N layers of a partial download
  };

  // Reads config.json and every shard header (model.safetensors.index.json, or model.safetensors
  // alone), then checks that every tensor the model needs exists exactly once with a legal dtype
  // and its exact shape, that A_log tails are zero, and that no unknown language-model tensor
  // exists. Vision tensors (vision_tower.*, mm_projector.*) are ignored. Errors: kUsage for the
  // configuration, kWeights for files; each names file, tensor and numbers. No weight is read
  // except A_log and the fingerprint's samples.
  static Result<Checkpoint> open(const std::filesystem::path& directory, const Options& options);

  // The model's configuration; `layers` is the number of layers in use.
  const ModelConfig& config() const;
  int model_layers() const;                // of the whole model
  const std::string& config_json() const;  // verbatim
  const std::vector<Shard>& shards() const;
  const std::filesystem::path& directory() const;

  // A tensor in use; nothing when there is none of this name.
  const TensorPlace* find(std::string_view name) const;

  // The six places of a routed expert; layer and expert must be in range (K3_CHECK).
  std::vector<TensorPlace> expert(int layer, int expert) const;

  // Hash of configuration, shard headers and sizes, and of 16 blocks of 4 KiB sampled from each
  // shard: two revisions of the same layout differ. 32 hexadecimal digits.
  const std::string& fingerprint() const;

  // Every tensor in use by name, in name order, for verify and census.
  struct NamedTensor {
    std::string name;
    const TensorPlace* place = nullptr;  // lives as long as the checkpoint or a copy of it
  };
  std::vector<NamedTensor> tensors() const;
  // Tensors present but not used by the text model or by the layers in use (vision, other layers).
  std::vector<NamedTensor> unused_tensors() const;

 private:
  struct State;
  explicit Checkpoint(std::shared_ptr<const State> state);
  std::shared_ptr<const State> state_;
};

}  // namespace k3
