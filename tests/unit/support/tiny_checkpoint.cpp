#include "tests/unit/support/tiny_checkpoint.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <stdexcept>
#include <tuple>

namespace k3::test {
namespace {

// Keeps the order of insertion, as a writer of safetensors does.
using Json = nlohmann::ordered_json;

std::string as_bytes(const std::vector<float>& values, const std::string& dtype) {
  std::string bytes;
  for (const float value : values) {
    std::array<char, 4> word{};
    std::memcpy(word.data(), &value, 4);
    // The upper half of a little-endian float is its bf16 truncation.
    bytes.append(dtype == "F32" ? word.data() : word.data() + 2, dtype == "F32" ? 4 : 2);
  }
  return bytes;
}

// Builds the list of tensors, drawing weights as it goes.
class Maker {
 public:
  explicit Maker(const TinyOptions& options) : o_(options), random_(options.seed) {}

  TinyCheckpoint make() {
    for (int layer = 0; layer < o_.layers; ++layer) add_layer(layer);
    shard_ = o_.layers;
    prefix_ = "language_model.";
    weights("model.embed_tokens.weight", {o_.vocab, o_.hidden});
    norm("model.norm.weight", o_.hidden);
    norm("model.output_attn_res_norm.weight", o_.hidden);
    small("model.output_attn_res_proj.weight", {1, o_.hidden}, "BF16", 0, 0.3F);
    weights("lm_head.weight", {o_.vocab, o_.hidden});
    if (o_.vision) {
      ++shard_;
      prefix_ = "";
      weights("vision_tower.patch_embed.weight", {4, 6});
      weights("mm_projector.linear.weight", {3, 5});
    }
    checkpoint_.shards = shard_ + 1;
    spread();
    return std::move(checkpoint_);
  }

 private:
  void add(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape,
           std::string data) {
    checkpoint_.tensors.push_back(
        {prefix_ + name, dtype, std::move(shape), std::move(data), shard_});
  }

  std::vector<float> normal(const std::vector<std::int64_t>& shape, float mean, float deviation) {
    std::size_t count = 1;
    for (const std::int64_t dimension : shape) count *= static_cast<std::size_t>(dimension);
    std::normal_distribution<float> draw(mean, deviation);
    std::vector<float> values(count);
    for (float& value : values) value = draw(random_);
    return values;
  }

  void weights(const std::string& name, std::vector<std::int64_t> shape) {
    const float deviation = 1.0F / std::sqrt(static_cast<float>(shape.back()));
    std::string data = as_bytes(normal(shape, 0, deviation), "BF16");
    add(name, "BF16", std::move(shape), std::move(data));
  }
  // A tensor that some checkpoints store in F32 and some in `dtype`.
  void small(const std::string& name, std::vector<std::int64_t> shape, std::string dtype,
             float mean, float deviation) {
    if (o_.f32_small_tensors) dtype = "F32";
    std::string data = as_bytes(normal(shape, mean, deviation), dtype);
    add(name, dtype, std::move(shape), std::move(data));
  }
  void norm(const std::string& name, int width) { small(name, {width}, "BF16", 1, 0.1F); }

  void bytes(const std::string& name, std::int64_t rows, std::int64_t cols, int low, int high) {
    std::uniform_int_distribution<int> draw(low, high);
    std::string data(static_cast<std::size_t>(rows * cols), '\0');
    for (char& byte : data) byte = static_cast<char>(draw(random_));
    add(name, "U8", {rows, cols}, std::move(data));
  }

  void add_layer(int layer) {
    shard_ = layer;
    prefix_ = "language_model.model.layers." + std::to_string(layer) + ".";
    norm("input_layernorm.weight", o_.hidden);
    norm("post_attention_layernorm.weight", o_.hidden);
    norm("self_attention_res_norm.weight", o_.hidden);
    norm("mlp_res_norm.weight", o_.hidden);
    small("self_attention_res_proj.weight", {1, o_.hidden}, "BF16", 0, 0.3F);
    small("mlp_res_proj.weight", {1, o_.hidden}, "BF16", 0, 0.3F);
    const auto& mla = o_.mla_layers;
    if (std::find(mla.begin(), mla.end(), layer + 1) != mla.end()) {
      add_mla();
    } else {
      add_kda();
    }
    if (layer < o_.dense_layers) {
      weights("mlp.gate_proj.weight", {o_.dense_width, o_.hidden});
      weights("mlp.up_proj.weight", {o_.dense_width, o_.hidden});
      weights("mlp.down_proj.weight", {o_.hidden, o_.dense_width});
    } else {
      add_moe();
    }
  }

  void add_kda() {
    const int width = o_.kda_heads * o_.kda_head_dim;
    for (const std::string part : {"q", "k", "v"}) {
      weights("self_attn." + part + "_proj.weight", {width, o_.hidden});
      small("self_attn." + part + "_conv1d.weight", {width, 1, o_.conv_taps}, "F32", 0, 0.5F);
    }
    weights("self_attn.g_proj.weight", {width, o_.hidden});
    weights("self_attn.o_proj.weight", {o_.hidden, width});
    weights("self_attn.f_a_proj.weight", {o_.kda_head_dim, o_.hidden});
    weights("self_attn.f_b_proj.weight", {width, o_.kda_head_dim});
    weights("self_attn.b_proj.weight", {o_.kda_heads, o_.hidden});
    std::vector<float> a_log = normal({o_.kda_heads}, 0, 0.5F);
    if (o_.pad_a_log) a_log.resize(static_cast<std::size_t>(o_.kda_head_dim));
    add("self_attn.A_log", "F32", {static_cast<std::int64_t>(a_log.size())},
        as_bytes(a_log, "F32"));
    small("self_attn.dt_bias", {width}, "F32", 0, 0.5F);
    small("self_attn.o_norm.weight", {o_.kda_head_dim}, "F32", 1, 0.1F);
  }

  void add_mla() {
    weights("self_attn.q_a_proj.weight", {o_.q_rank, o_.hidden});
    norm("self_attn.q_a_layernorm.weight", o_.q_rank);
    weights("self_attn.q_b_proj.weight", {o_.mla_heads * (o_.nope_dim + o_.rope_dim), o_.q_rank});
    weights("self_attn.kv_a_proj_with_mqa.weight", {o_.kv_rank + o_.rope_dim, o_.hidden});
    norm("self_attn.kv_a_layernorm.weight", o_.kv_rank);
    weights("self_attn.kv_b_proj.weight", {o_.mla_heads * (o_.nope_dim + o_.v_dim), o_.kv_rank});
    weights("self_attn.g_proj.weight", {o_.mla_heads * o_.v_dim, o_.hidden});
    weights("self_attn.o_proj.weight", {o_.hidden, o_.mla_heads * o_.v_dim});
  }

  void add_moe() {
    const int shared = o_.shared_experts * o_.expert_width;
    weights("block_sparse_moe.gate.weight", {o_.experts, o_.hidden});
    small("block_sparse_moe.gate.e_score_correction_bias", {o_.experts}, "F32", 0, 0.1F);
    weights("block_sparse_moe.routed_expert_down_proj.weight", {o_.latent, o_.hidden});
    weights("block_sparse_moe.routed_expert_up_proj.weight", {o_.hidden, o_.latent});
    norm("block_sparse_moe.routed_expert_norm.weight", o_.latent);
    weights("block_sparse_moe.shared_experts.gate_proj.weight", {shared, o_.hidden});
    weights("block_sparse_moe.shared_experts.up_proj.weight", {shared, o_.hidden});
    weights("block_sparse_moe.shared_experts.down_proj.weight", {o_.hidden, shared});
    for (int expert = 0; expert < o_.experts; ++expert) {
      const std::string name = "block_sparse_moe.experts." + std::to_string(expert) + ".";
      add_quantised(name + "w1", o_.expert_width, o_.latent);
      add_quantised(name + "w2", o_.latent, o_.expert_width);
      add_quantised(name + "w3", o_.expert_width, o_.latent);
    }
  }

  void add_quantised(const std::string& name, int rows, int cols) {
    bytes(name + ".weight_packed", rows, cols / 2, 0, 255);
    bytes(name + ".weight_scale", rows, cols / 32, 121, 125);  // weights up to 6 * 2^-2
  }

  // Assigns shards where they are not one a layer.
  void spread() {
    checkpoint_.single_file = o_.single_file;
    if (o_.single_file) checkpoint_.shards = 1;
    std::uniform_int_distribution<int> draw(0, checkpoint_.shards - 1);
    for (TinyTensor& tensor : checkpoint_.tensors) {
      if (o_.single_file) {
        tensor.shard = 0;
      } else if (o_.scattered) {
        tensor.shard = draw(random_);
      }
    }
  }

  const TinyOptions& o_;
  std::mt19937_64 random_;
  TinyCheckpoint checkpoint_;
  std::string prefix_;
  int shard_ = 0;
};

std::string config_json(const TinyOptions& o) {
  std::vector<int> kda;
  for (int layer = 1; layer <= o.layers; ++layer) {
    if (std::find(o.mla_layers.begin(), o.mla_layers.end(), layer) == o.mla_layers.end()) {
      kda.push_back(layer);
    }
  }
  const Json linear = {{"full_attn_layers", o.mla_layers},
                       {"kda_layers", kda},
                       {"num_heads", o.kda_heads},
                       {"head_dim", o.kda_head_dim},
                       {"short_conv_kernel_size", o.conv_taps},
                       {"gate_lower_bound", -5.0},
                       {"use_full_rank_gate", true}};
  const Json quantization = {
      {"format", "mxfp4-pack-quantized"},
      {"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}, {"group_size", 32}}}}}}}};
  const Json text = {{"vocab_size", o.vocab},
                     {"hidden_size", o.hidden},
                     {"intermediate_size", o.dense_width},
                     {"num_hidden_layers", o.layers},
                     {"num_attention_heads", o.mla_heads},
                     {"hidden_act", "situ"},
                     {"activation_situ_beta", 4.0},
                     {"activation_situ_linear_beta", 25.0},
                     {"rms_norm_eps", 1e-5},
                     {"tie_word_embeddings", false},
                     {"first_k_dense_replace", o.dense_layers},
                     {"num_experts", o.experts},
                     {"num_experts_per_token", o.top_k},
                     {"num_shared_experts", o.shared_experts},
                     {"num_expert_group", 1},
                     {"moe_router_activation_func", "sigmoid"},
                     {"moe_renormalize", true},
                     {"routed_scaling_factor", 1.5},
                     {"moe_intermediate_size", o.expert_width},
                     {"routed_expert_hidden_size", o.latent},
                     {"latent_moe_use_norm", true},
                     {"attn_res_block_size", o.residual_block},
                     {"q_lora_rank", o.q_rank},
                     {"kv_lora_rank", o.kv_rank},
                     {"qk_nope_head_dim", o.nope_dim},
                     {"qk_rope_head_dim", o.rope_dim},
                     {"v_head_dim", o.v_dim},
                     {"mla_use_nope", true},
                     {"mla_use_output_gate", true},
                     {"num_nextn_predict_layers", 0},
                     {"linear_attn_config", linear},
                     {"quantization_config", quantization}};
  return Json{{"model_type", "kimi_k3"}, {"text_config", text}}.dump(1);
}

void write_file(const std::filesystem::path& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

std::string shard_bytes(std::vector<const TinyTensor*> tensors) {
  const std::vector<std::string> order = {"F32", "BF16", "U8"};
  std::sort(tensors.begin(), tensors.end(), [&](const TinyTensor* a, const TinyTensor* b) {
    const auto rank = [&](const TinyTensor* tensor) {
      return std::find(order.begin(), order.end(), tensor->dtype) - order.begin();
    };
    return std::tuple(rank(a), a->name) < std::tuple(rank(b), b->name);
  });
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const TinyTensor* tensor : tensors) {
    const std::size_t begin = data.size();
    data += tensor->data;
    header[tensor->name] = {
        {"dtype", tensor->dtype}, {"shape", tensor->shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (int byte = 0; byte < 8; ++byte) bytes += static_cast<char>(json.size() >> (8 * byte));
  return bytes + json + data;
}

}  // namespace

TinyTensor& TinyCheckpoint::at(const std::string& name) {
  for (TinyTensor& tensor : tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::out_of_range("the tiny checkpoint has no tensor " + name);
}

void TinyCheckpoint::erase(const std::string& name) {
  const TinyTensor* const doomed = &at(name);
  tensors.erase(tensors.begin() + (doomed - tensors.data()));
}

std::string TinyCheckpoint::shard_name(int shard) const {
  if (single_file) return "model.safetensors";
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05d-of-%05d.safetensors", shard + 1, shards);
  return name.data();
}

TinyCheckpoint make_tiny_checkpoint(const TinyOptions& options) {
  TinyCheckpoint checkpoint = Maker(options).make();
  checkpoint.config_json = config_json(options);
  return checkpoint;
}

void write_tiny_checkpoint(const TinyCheckpoint& checkpoint,
                           const std::filesystem::path& directory) {
  std::filesystem::create_directories(directory);
  write_file(directory / "config.json", checkpoint.config_json);
  Json weight_map = Json::object();
  for (int shard = 0; shard < checkpoint.shards; ++shard) {
    std::vector<const TinyTensor*> tensors;
    for (const TinyTensor& tensor : checkpoint.tensors) {
      if (tensor.shard != shard) continue;
      tensors.push_back(&tensor);
      weight_map[tensor.name] = checkpoint.shard_name(shard);
    }
    write_file(directory / checkpoint.shard_name(shard), shard_bytes(std::move(tensors)));
  }
  if (checkpoint.single_file) return;
  write_file(directory / "model.safetensors.index.json", Json{{"weight_map", weight_map}}.dump(1));
}

void write_tiny_checkpoint(const TinyOptions& options, const std::filesystem::path& directory) {
  write_tiny_checkpoint(make_tiny_checkpoint(options), directory);
}

}  // namespace k3::test
