// Small checkpoints in the released layout with random weights, for tests that need one on disk.
// Names, shapes and types are written out here, independently of common/checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace k3::test {

// The model's shape and the layout's variations. Every field may be changed.
struct TinyOptions {
  std::uint64_t seed = 1;

  int layers = 4;
  std::vector<int> mla_layers = {3, 4};  // one-based
  int dense_layers = 1;
  int hidden = 64;
  int vocab = 96;
  int kda_heads = 2;
  int kda_head_dim = 16;
  int conv_taps = 4;
  int mla_heads = 2;
  int q_rank = 32;
  int kv_rank = 16;
  int nope_dim = 12;
  int rope_dim = 4;
  int v_dim = 8;
  int experts = 12;  // more than ten: string order differs from numeric order
  int top_k = 3;
  int shared_experts = 2;
  int latent = 32;
  int expert_width = 64;
  int dense_width = 80;
  int residual_block = 2;

  bool f32_small_tensors = false;  // all vectors F32; else released types (norms BF16)
  bool pad_a_log = true;           // to head_dim values, zeros beyond the heads
  bool vision = true;              // two tensors that the text model ignores
  bool single_file = false;        // model.safetensors without an index
  // Tensors dealt out over the shards at random, the parts of an expert too; else a shard a layer,
  // one for the top level and one for vision.
  bool scattered = false;
};

struct TinyTensor {
  std::string name;
  std::string dtype;  // as in safetensors: "F32", "BF16", "U8"
  std::vector<std::int64_t> shape;
  std::string data;
  int shard = 0;
};

// In memory, so that a test can spoil it before it is written.
struct TinyCheckpoint {
  std::string config_json;
  std::vector<TinyTensor> tensors;
  int shards = 1;
  bool single_file = false;

  // The tensor of this name; throws when there is none.
  TinyTensor& at(const std::string& name);
  // Removes it.
  void erase(const std::string& name);
  // "model-00002-of-00006.safetensors"
  std::string shard_name(int shard) const;
};

TinyCheckpoint make_tiny_checkpoint(const TinyOptions& options);

// Writes config.json, the shards (in each: F32, BF16, U8 tensors, by name) and the index into
// `directory`, which is created. The offsets follow from the data's sizes, not from the shapes.
void write_tiny_checkpoint(const TinyCheckpoint& checkpoint,
                           const std::filesystem::path& directory);

// Both steps.
void write_tiny_checkpoint(const TinyOptions& options, const std::filesystem::path& directory);

}  // namespace k3::test
