#include "common/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/checkpoint/shard_set.h"
#include "common/checkpoint/tensor_table.h"
#include "common/checkpoint/trunk_order.h"

namespace k3 {
namespace {

constexpr const char* kConfigFile = "config.json";
constexpr std::size_t kMaxConfigBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxVocabularyBytes = std::size_t{64} << 20;
// Part of the fingerprint: another vocabulary makes other ids of the same text.
constexpr const char* kVocabularyFiles[] = {"tiktoken.model", "tokenizer_config.json"};
constexpr int kScaleGroup = 32;  // MXFP4 weights that share a scale

// Routed experts are stored in MXFP4: their rows are whole groups.
Status check_expert_widths(const ModelConfig& config, const std::string& file) {
  if (config.dense_layers == config.layers) return {};
  if (config.latent % kScaleGroup == 0 && config.expert_width % kScaleGroup == 0) return {};
  return fail(
      ErrorCode::kUsage,
      "{}: routed_expert_hidden_size {} and moe_intermediate_size {}: MXFP4 needs multiples "
      "of {}",
      file, config.latent, config.expert_width, kScaleGroup);
}

// The configuration of the first `layers` layers.
Result<ModelConfig> first_layers(const ModelConfig& model, int layers) {
  if (layers < 1 || layers > model.layers) {
    return fail(ErrorCode::kUsage, "layers {}: the model has {}, expected 1..{}", layers,
                model.layers, model.layers);
  }
  ModelConfig config = model;
  config.layers = layers;
  config.dense_layers = std::min(model.dense_layers, layers);
  config.attention.resize(static_cast<std::size_t>(layers));
  return config;
}

// Widens one stored value, F32 or BF16.
float value_at(std::span<const std::byte> data, DType dtype, std::size_t index) {
  std::uint32_t bits = 0;
  if (dtype == DType::kF32) {
    std::memcpy(&bits, data.data() + index * 4, 4);
  } else {
    std::uint16_t upper = 0;
    std::memcpy(&upper, data.data() + index * 2, 2);
    bits = std::uint32_t{upper} << 16;
  }
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// A_log may be padded beyond one value per head; anything but zeros there would mean that the
// values are not per head.
Status check_a_log_tail(const TensorPlace& place, const std::string& name,
                        const std::filesystem::path& path, std::size_t heads) {
  if (place.shape.front() <= heads) return {};
  K3_ASSIGN(const UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
  std::vector<std::byte> data(place.bytes);
  K3_TRY(read_exactly(fd.get(), place.offset, data, path));
  for (std::size_t i = heads; i < place.shape.front(); ++i) {
    const float value = value_at(data, place.dtype, i);
    if (value != 0) {
      return fail(ErrorCode::kWeights,
                  "{}: tensor {}: value {} is {}, expected 0 beyond the {} heads", path.string(),
                  name, i, value, heads);
    }
  }
  return {};
}

Status check_a_log_tails(const TensorTable& table, const ModelConfig& config) {
  for (const TrunkTensor& tensor : trunk_order(config)) {
    if (tensor.role != TrunkRole::kKdaALog) continue;
    const TensorPlace& place = *table.find(tensor.name);
    K3_TRY(check_a_log_tail(place, tensor.name, table.shards()[place.shard].path,
                            static_cast<std::size_t>(config.kda_heads)));
  }
  return {};
}

// The number of layers in use belongs to it: what is built for the first few layers of a model is
// not what the whole model needs, even from the same shards.
std::string fingerprint_of(const std::string& config_json, const std::string& vocabulary,
                           int layers, const std::vector<std::string>& shard_digests) {
  Hasher hasher;
  hasher.add(std::string_view(config_json));
  hasher.add(std::string_view(vocabulary));
  hasher.add(static_cast<std::uint64_t>(layers));
  for (const std::string& digest : shard_digests) hasher.add(std::string_view(digest));
  return hasher.hex();
}

// The vocabulary's files, one after the other; one that is absent is empty.
Result<std::string> read_vocabulary(const std::filesystem::path& directory) {
  std::string files;
  for (const char* name : kVocabularyFiles) {
    std::error_code ignored;
    const auto kind = std::filesystem::status(directory / name, ignored).type();
    if (kind == std::filesystem::file_type::not_found) continue;
    Result<std::string> content = read_text_file(directory / name, kMaxVocabularyBytes);
    if (!content) return fail(ErrorCode::kUsage, "{}", content.error().message);
    files += *content;
  }
  return files;
}

}  // namespace

struct Checkpoint::State {
  std::filesystem::path directory;
  std::string config_json;
  ModelConfig config;
  int model_layers;
  TensorTable table;
  std::string fingerprint;
};

Checkpoint::Checkpoint(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& directory,
                                    const Options& options) {
  const std::filesystem::path config_path = directory / kConfigFile;
  Result<std::string> config_json = read_text_file(config_path, kMaxConfigBytes);
  if (!config_json) return fail(ErrorCode::kUsage, "{}", config_json.error().message);
  K3_ASSIGN(const ModelConfig model, parse_model_config(*config_json, config_path.string()));
  K3_TRY(check_expert_widths(model, config_path.string()));
  K3_ASSIGN(ModelConfig config, first_layers(model, options.layers.value_or(model.layers)));

  TensorTable table(directory, model, config.layers);
  K3_TRY(list_shards(directory, options.layers.has_value(), table));
  K3_ASSIGN(const std::vector<std::string> digests, read_shards(table));
  K3_TRY(table.check());
  K3_TRY(check_a_log_tails(table, config));

  K3_ASSIGN(const std::string vocabulary, read_vocabulary(directory));
  std::string fingerprint = fingerprint_of(*config_json, vocabulary, config.layers, digests);
  return Checkpoint(
      std::make_shared<const State>(State{directory, std::move(*config_json), std::move(config),
                                          model.layers, std::move(table), std::move(fingerprint)}));
}

const ModelConfig& Checkpoint::config() const { return state_->config; }
int Checkpoint::model_layers() const { return state_->model_layers; }
const std::string& Checkpoint::config_json() const { return state_->config_json; }
const std::vector<Shard>& Checkpoint::shards() const { return state_->table.shards(); }
const std::filesystem::path& Checkpoint::directory() const { return state_->directory; }
const std::string& Checkpoint::fingerprint() const { return state_->fingerprint; }

const TensorPlace* Checkpoint::find(std::string_view name) const {
  return state_->table.find(name);
}

std::vector<TensorPlace> Checkpoint::expert(int layer, int expert) const {
  const ModelConfig& config = state_->config;
  K3_CHECK(layer >= config.dense_layers && layer < config.layers && expert >= 0 &&
               expert < config.experts,
           fmt::format("layer {} expert {}", layer, expert));
  std::vector<TensorPlace> places;
  places.reserve(kExpertParts);
  for (int part = 0; part < kExpertParts; ++part) {
    places.push_back(state_->table.expert(layer, expert, ExpertPart(part)));
  }
  return places;
}

std::vector<Checkpoint::NamedTensor> Checkpoint::tensors() const {
  return state_->table.named(true);
}
std::vector<Checkpoint::NamedTensor> Checkpoint::unused_tensors() const {
  return state_->table.named(false);
}

}  // namespace k3
