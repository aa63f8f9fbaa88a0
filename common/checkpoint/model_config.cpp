#include "common/checkpoint/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

namespace k3 {
namespace {

using Json = nlohmann::json;

// Upper limits of sizes: no product of two of them overflows an int.
constexpr int kMaxLayers = 1024;
constexpr int kMaxExperts = 1 << 16;
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxHeads = 1 << 14;
constexpr int kMaxHeadDim = 1 << 14;
constexpr int kMaxTaps = 64;
constexpr int kMaxSharedExperts = 1024;

// Reads the fields of one JSON object and records every problem with the field's full path.
class Fields {
 public:
  // `object` may be null (nothing there): every required field is then missing.
  Fields(const Json* object, std::string path, std::vector<std::string>& problems)
      : object_(object), path_(std::move(path)), problems_(problems) {}

  // The member `name` as an object of its own.
  Fields object(const std::string& name) {
    const Json* member = find(name);
    if (member == nullptr) {
      problem(name, "missing, expected an object");
    } else if (!member->is_object()) {
      problem(name, fmt::format("{}, expected an object", shown(*member)));
      member = nullptr;
    }
    return Fields(member, path_ + name + ".", problems_);
  }

  // 0 when there is a problem.
  int integer(const std::string& name, int low, int high) {
    const std::string wanted = low == high ? fmt::format("expected {}", low)
                                           : fmt::format("expected an integer {}..{}", low, high);
    const Json* member = find(name);
    if (member == nullptr) {
      problem(name, "missing, " + wanted);
      return 0;
    }
    const std::optional<std::int64_t> value = as_integer(*member);
    if (!value || *value < low || *value > high) {
      problem(name, fmt::format("{}, {}", shown(*member), wanted));
      return 0;
    }
    return static_cast<int>(*value);
  }

  float positive(const std::string& name) {
    return number(name, "a positive number", [](float value) { return value > 0; });
  }
  float negative(const std::string& name) {
    return number(name, "a negative number", [](float value) { return value < 0; });
  }

  // The field must have exactly this value (a string or a boolean).
  void must_be(const std::string& name, const Json& wanted) {
    if (find(name) == nullptr) {
      problem(name, fmt::format("missing, expected {}", wanted.dump()));
    } else {
      must_be_when_present(name, wanted);
    }
  }
  void must_be_when_present(const std::string& name, const Json& wanted) {
    const Json* member = find(name);
    if (member == nullptr || *member == wanted) return;
    problem(name, fmt::format("{}, expected {}", shown(*member), wanted.dump()));
  }

  // One-based layer numbers, each in 1..layers and listed once; nothing when there is a problem.
  std::optional<std::vector<bool>> layer_set(const std::string& name, int layers) {
    const Json* member = find(name);
    if (member == nullptr || !member->is_array()) {
      problem(name, fmt::format("{}, expected a list of layer numbers",
                                member == nullptr ? "missing" : shown(*member)));
      return std::nullopt;
    }
    if (layers == 0) return std::nullopt;
    std::vector<bool> set(static_cast<std::size_t>(layers));
    const std::size_t problems_before = problems_.size();
    for (const Json& item : *member) {
      const std::optional<std::int64_t> layer = as_integer(item);
      if (!layer || *layer < 1 || *layer > layers) {
        problem(name, fmt::format("{}, expected layer numbers 1..{}", shown(item), layers));
        continue;
      }
      const auto index = static_cast<std::size_t>(*layer - 1);
      if (set[index]) problem(name, fmt::format("layer {} is listed twice", *layer));
      set[index] = true;
    }
    if (problems_.size() != problems_before) return std::nullopt;
    return set;
  }

  const Json* find(const std::string& name) const {
    if (object_ == nullptr) return nullptr;
    const auto found = object_->find(name);
    return found == object_->end() ? nullptr : &*found;
  }

  void problem(const std::string& name, std::string_view what) {
    problems_.push_back(fmt::format("{}{}: {}", path_, name, what));
  }

  // The names of the members, in order; none when nothing is there.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    if (object_ == nullptr) return names;
    for (const auto& [name, value] : object_->items()) names.push_back(name);
    return names;
  }

 private:
  template <class Accept>
  float number(const std::string& name, std::string_view wanted, const Accept& accept) {
    const Json* member = find(name);
    if (member == nullptr) {
      problem(name, fmt::format("missing, expected {}", wanted));
      return 0;
    }
    const float value = member->is_number() ? member->get<float>() : 0;
    if (!member->is_number() || !std::isfinite(value) || !accept(value)) {
      problem(name, fmt::format("{}, expected {}", shown(*member), wanted));
    }
    return value;
  }

  // A JSON integer; neither 1.0 nor true is one.
  static std::optional<std::int64_t> as_integer(const Json& value) {
    if (!value.is_number_integer()) return std::nullopt;
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
    return value.get<std::int64_t>();
  }

  // The value as JSON, cut to a length that fits a message; lists and objects by kind only, because
  // printing one recurses as deep as the input is nested.
  static std::string shown(const Json& value) {
    constexpr std::size_t kShownBytes = 60;
    if (value.is_array()) return "a list";
    if (value.is_object()) return "an object";
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
    return text;
  }

  const Json* object_;
  std::string path_;
  std::vector<std::string>& problems_;
};

// Fields that have the same name and meaning in both layouts.
void read_common(Fields& text, ModelConfig& c) {
  c.layers = text.integer("num_hidden_layers", 1, kMaxLayers);
  c.hidden = text.integer("hidden_size", 1, kMaxWidth);
  c.vocab = text.integer("vocab_size", 1, kMaxVocab);
  c.rms_eps = text.positive("rms_norm_eps");

  c.mla_heads = text.integer("num_attention_heads", 1, kMaxHeads);
  c.q_rank = text.integer("q_lora_rank", 1, kMaxWidth);
  c.kv_rank = text.integer("kv_lora_rank", 1, kMaxWidth);
  c.nope_dim = text.integer("qk_nope_head_dim", 1, kMaxHeadDim);
  c.rope_dim = text.integer("qk_rope_head_dim", 1, kMaxHeadDim);
  c.v_dim = text.integer("v_head_dim", 1, kMaxHeadDim);
  text.must_be("mla_use_output_gate", true);

  c.experts = text.integer("num_experts", 1, kMaxExperts);
  c.top_k = text.integer("num_experts_per_token", 1, kMaxExperts);
  if (c.experts > 0 && c.top_k > c.experts) {
    text.problem("num_experts_per_token",
                 fmt::format("{}, expected at most num_experts, {}", c.top_k, c.experts));
  }
  c.shared_experts = text.integer("num_shared_experts", 1, kMaxSharedExperts);
  c.latent = text.integer("routed_expert_hidden_size", 1, kMaxWidth);
  c.expert_width = text.integer("moe_intermediate_size", 1, kMaxWidth);
  c.routed_scale = text.positive("routed_scaling_factor");
  text.must_be("moe_renormalize", true);
  text.must_be("latent_moe_use_norm", true);

  c.dense_layers = text.integer("first_k_dense_replace", 0, c.layers > 0 ? c.layers : kMaxLayers);
  c.dense_width = text.integer("intermediate_size", 1, kMaxWidth);
  c.residual_block = text.integer("attn_res_block_size", 1, kMaxLayers);
  text.must_be_when_present("tie_word_embeddings", false);
  if (text.find("moe_layer_freq") != nullptr) text.integer("moe_layer_freq", 1, 1);
}

// The fields of KDA, in `linear`; the two layouts name the heads differently.
void read_kda(Fields& linear, const std::string& heads, const std::string& head_dim,
              ModelConfig& c) {
  c.kda_heads = linear.integer(heads, 1, kMaxHeads);
  c.kda_head_dim = linear.integer(head_dim, 1, kMaxHeadDim);
  c.conv_taps = linear.integer("short_conv_kernel_size", 1, kMaxTaps);
  c.decay_lower_bound = linear.negative("gate_lower_bound");

  const std::optional<std::vector<bool>> mla = linear.layer_set("full_attn_layers", c.layers);
  const std::optional<std::vector<bool>> kda = linear.find("kda_layers") != nullptr
                                                   ? linear.layer_set("kda_layers", c.layers)
                                                   : std::nullopt;
  if (!mla) return;
  for (std::size_t layer = 0; layer < mla->size(); ++layer) {
    c.attention.push_back((*mla)[layer] ? Attention::kMla : Attention::kKda);
    if (kda && (*kda)[layer] == (*mla)[layer]) {
      linear.problem("kda_layers", fmt::format("layer {} is in {} kda_layers and full_attn_layers",
                                               layer + 1, (*kda)[layer] ? "both" : "neither of"));
    }
  }
}

// Fields whose other values mean a model this code does not compute.
void check_variant(Fields& text, Fields& linear) {
  linear.must_be("use_full_rank_gate", true);
  text.must_be("hidden_act", "situ");
  text.must_be("moe_router_activation_func", "sigmoid");
  text.must_be("mla_use_nope", true);
  text.integer("num_expert_group", 1, 1);
  text.integer("num_nextn_predict_layers", 0, 0);

  Fields quantization = text.object("quantization_config");
  quantization.must_be("format", "mxfp4-pack-quantized");
  Fields groups = quantization.object("config_groups");
  const std::vector<std::string> names = groups.names();
  if (names.empty()) quantization.problem("config_groups", "expected at least one group");
  for (const std::string& name : names) {
    groups.object(name).object("weights").integer("group_size", 32, 32);
  }
}

void read_nested(Fields& root, ModelConfig& c) {
  Fields text = root.object("text_config");
  read_common(text, c);
  c.situ_beta = text.positive("activation_situ_beta");
  c.situ_linear_beta = text.positive("activation_situ_linear_beta");
  Fields linear = text.object("linear_attn_config");
  read_kda(linear, "num_heads", "head_dim", c);
  check_variant(text, linear);
}

void read_flat(Fields& root, ModelConfig& c) {
  read_common(root, c);
  c.situ_beta = root.positive("situ_beta");
  c.situ_linear_beta = root.positive("situ_linear_beta");
  read_kda(root, "kda_num_heads", "kda_head_dim", c);
  // The flat layout may leave out what it does not vary.
  root.must_be_when_present("use_full_rank_gate", true);
  root.must_be_when_present("hidden_act", "situ");
  root.must_be_when_present("moe_router_activation_func", "sigmoid");
  root.must_be_when_present("mla_use_nope", true);
  if (root.find("num_expert_group") != nullptr) root.integer("num_expert_group", 1, 1);
  if (root.find("num_nextn_predict_layers") != nullptr) {
    root.integer("num_nextn_predict_layers", 0, 0);
  }
}

// The document; kUsage when it is not JSON, holds a number that no double can, or names a member of
// an object twice (which of the two is meant nobody can know).
Result<Json> parse_strictly(std::string_view json, const std::string& file) {
  std::vector<std::set<std::string>> open_objects;
  std::optional<std::string> twice;
  const auto note_keys = [&](int, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key && !twice) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_objects.back().insert(key).second) twice = key;
    }
    return true;
  };
  try {
    Json document = Json::parse(json, note_keys);
    if (twice) return fail(ErrorCode::kUsage, "{}: {} is there twice in one object", file, *twice);
    return document;
  } catch (const Json::exception& error) {
    return fail(ErrorCode::kUsage, "{}: not valid JSON: {}", file, error.what());
  }
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view json, const std::string& file) {
  K3_ASSIGN(const Json root, parse_strictly(json, file));
  if (!root.is_object()) return fail(ErrorCode::kUsage, "{}: expected a JSON object", file);

  std::vector<std::string> problems;
  Fields fields(&root, "", problems);
  ModelConfig config;
  if (root.contains("text_config")) {
    read_nested(fields, config);
  } else {
    read_flat(fields, config);
  }
  if (!problems.empty()) {
    return fail(ErrorCode::kUsage, "{}: {}", file, fmt::join(problems, "; "));
  }
  return config;
}

}  // namespace k3
