#include "common/checkpoint/tensor_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "common/checkpoint/model_tensors.h"
#include "common/checkpoint/trunk_order.h"

namespace k3 {
namespace {

constexpr std::string_view kLanguageModelPrefix = "language_model.";

std::size_t slot_index(int expert, ExpertPart part) {
  return static_cast<std::size_t>(expert) * kExpertParts + static_cast<std::size_t>(part);
}

// 0..count-1 in the order of their decimal texts, which is their order inside names.
std::vector<int> in_text_order(int count) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  std::sort(numbers.begin(), numbers.end(),
            [](int a, int b) { return std::to_string(a) < std::to_string(b); });
  return numbers;
}

// nullopt when the name is not an expert's of this model.
std::optional<ExpertTensor> expert_in(std::string_view name, const ModelConfig& model) {
  const std::optional<ExpertTensor> id = parse_expert_tensor_name(name);
  if (!id || id->layer < model.dense_layers || id->layer >= model.layers ||
      id->expert >= model.experts) {
    return std::nullopt;
  }
  return id;
}

Status check_place(const TensorPlace& place, std::string_view name, const std::string& file,
                   bool dtype_legal, std::string_view legal_dtypes,
                   const std::vector<Shape>& shapes) {
  if (!dtype_legal) {
    return fail(ErrorCode::kWeights, "{}: tensor {}: dtype {}, expected {}", file, name,
                name_of(place.dtype), legal_dtypes);
  }
  if (std::find(shapes.begin(), shapes.end(), place.shape) == shapes.end()) {
    std::string expected = text_of(shapes.front());
    if (shapes.size() > 1) expected += " or " + text_of(shapes.back());
    return fail(ErrorCode::kWeights, "{}: tensor {}: shape {}, expected {}", file, name,
                text_of(place.shape), expected);
  }
  return {};
}

}  // namespace

TensorTable::TensorTable(const std::filesystem::path& directory, const ModelConfig& model,
                         int layers)
    : directory_(directory),
      model_(model),
      layers_(layers),
      experts_(static_cast<std::size_t>(model.layers)) {
  for (const TrunkTensor& tensor : trunk_order(model)) trunk_[tensor.name].layer = tensor.layer;
  trunk_[kEmbeddingName].layer = -1;
}

TensorUse TensorTable::use_of(std::string_view name) const {
  int layer = -1;
  if (const std::optional<ExpertTensor> id = expert_in(name, model_)) {
    layer = id->layer;
  } else if (!name.starts_with(kLanguageModelPrefix)) {
    return TensorUse::kUnused;
  } else if (const auto found = trunk_.find(name); found != trunk_.end()) {
    layer = found->second.layer;
  } else {
    return TensorUse::kUnknown;
  }
  return layer < layers_ ? TensorUse::kUsed : TensorUse::kUnused;
}

std::uint32_t TensorTable::add_shard(std::filesystem::path path) {
  shards_.push_back({.path = std::move(path), .file_bytes = 0});
  return static_cast<std::uint32_t>(shards_.size() - 1);
}

TensorTable::Slot* TensorTable::slot(std::string_view name) {
  if (const std::optional<ExpertTensor> id = expert_in(name, model_)) {
    LayerExperts& layer = experts_[static_cast<std::size_t>(id->layer)];
    layer.resize(static_cast<std::size_t>(model_.experts) * kExpertParts);
    return &layer[slot_index(id->expert, id->part)];
  }
  if (!name.starts_with(kLanguageModelPrefix)) return &foreign_[std::string(name)];
  const auto found = trunk_.find(name);
  return found == trunk_.end() ? nullptr : &found->second;
}

Status TensorTable::list(std::string_view name, std::uint32_t shard) {
  indexed_ = true;
  Slot* const entry = slot(name);
  if (entry == nullptr) {
    return fail(ErrorCode::kWeights, "{}: the index lists tensor {}: the model has no such tensor",
                directory_.string(), name);
  }
  if (entry->listed) {
    return fail(ErrorCode::kWeights, "{}: the index lists tensor {} twice", directory_.string(),
                name);
  }
  entry->listed = true;
  entry->place.shard = shard;
  return {};
}

Status TensorTable::merge(std::uint32_t shard, ShardHeader header) {
  const std::string file = header.path.string();
  shards_[shard].file_bytes = header.file_bytes;
  for (TensorEntry& tensor : header.tensors) {
    Slot* const entry = slot(tensor.name);
    if (entry == nullptr) {
      return fail(ErrorCode::kWeights, "{}: tensor {}: the model has no such tensor", file,
                  tensor.name);
    }
    if (indexed_ && !entry->listed) {
      return fail(ErrorCode::kWeights, "{}: tensor {} is not listed in the index", file,
                  tensor.name);
    }
    const std::filesystem::path& other = shards_[entry->place.shard].path;
    if (entry->listed && entry->place.shard != shard) {
      return fail(ErrorCode::kWeights, "{}: tensor {}: the index lists it in {}", file, tensor.name,
                  other.string());
    }
    if (entry->found) {
      return fail(ErrorCode::kWeights, "{}: tensor {} is also in {}", file, tensor.name,
                  other.string());
    }
    entry->found = true;
    entry->place = {.shard = shard,
                    .dtype = tensor.dtype,
                    .shape = std::move(tensor.shape),
                    .offset = tensor.offset,
                    .bytes = tensor.bytes};
  }
  return {};
}

Status TensorTable::check() const {
  K3_TRY(check_listed_found());
  K3_TRY(check_trunk());
  for (int layer = model_.dense_layers; layer < layers_; ++layer) K3_TRY(check_experts(layer));
  return {};
}

Status TensorTable::check_listed_found() const {
  std::string name;
  std::uint32_t shard = 0;
  const auto note_absent = [&](std::string_view slot_name, const Slot& entry) {
    if (!entry.listed || entry.found || !name.empty()) return;
    name = slot_name;
    shard = entry.place.shard;
  };
  for (const auto& [slot_name, entry] : trunk_) note_absent(slot_name, entry);
  for (const auto& [slot_name, entry] : foreign_) note_absent(slot_name, entry);
  for (int layer = 0; layer < model_.layers && name.empty(); ++layer) {
    const LayerExperts& experts = experts_[static_cast<std::size_t>(layer)];
    const bool all_found = std::all_of(experts.begin(), experts.end(), [](const Slot& entry) {
      return entry.found || !entry.listed;
    });
    if (!all_found) for_each_expert(layer, note_absent);
  }
  if (name.empty()) return {};
  return fail(ErrorCode::kWeights, "{}: tensor {} is absent, though the index lists it here",
              shards_[shard].path.string(), name);
}

Status TensorTable::check_trunk() const {
  std::vector<TrunkTensor> tensors = trunk_order(model_);
  // The embedding is no part of the pass; its shape is the head's.
  tensors.push_back({.role = TrunkRole::kHead,
                     .name = kEmbeddingName,
                     .rows = static_cast<std::uint32_t>(model_.vocab),
                     .cols = static_cast<std::uint32_t>(model_.hidden)});
  for (const TrunkTensor& tensor : tensors) {
    if (tensor.layer >= layers_) continue;
    const TrunkSlot& entry = trunk_.find(tensor.name)->second;
    if (!entry.found) {
      return fail(ErrorCode::kWeights, "{}: tensor {} is in no shard", directory_.string(),
                  tensor.name);
    }
    const DType dtype = entry.place.dtype;
    K3_TRY(check_place(entry.place, tensor.name, shards_[entry.place.shard].path.string(),
                       dtype == DType::kBf16 || dtype == DType::kF32, "BF16 or F32",
                       legal_shapes(tensor, model_)));
  }
  return {};
}

Status TensorTable::check_experts(int layer) const {
  const LayerExperts& experts = experts_[static_cast<std::size_t>(layer)];
  std::vector<std::vector<Shape>> shapes;
  for (int part = 0; part < kExpertParts; ++part) {
    shapes.push_back({expert_part_shape(model_, ExpertPart(part))});
  }
  for (int expert = 0; expert < model_.experts; ++expert) {
    for (int part = 0; part < kExpertParts; ++part) {
      const Slot* const entry =
          experts.empty() ? nullptr : &experts[slot_index(expert, ExpertPart(part))];
      const std::vector<Shape>& expected = shapes[static_cast<std::size_t>(part)];
      if (entry != nullptr && entry->found && entry->place.dtype == DType::kU8 &&
          entry->place.shape == expected.front()) {
        continue;
      }
      const std::string name = expert_tensor_name(layer, expert, ExpertPart(part));
      if (entry == nullptr || !entry->found) {
        return fail(ErrorCode::kWeights, "{}: layer {} expert {}: tensor {} is in no shard",
                    directory_.string(), layer, expert, name);
      }
      return check_place(entry->place, name, shards_[entry->place.shard].path.string(),
                         entry->place.dtype == DType::kU8, "U8", expected);
    }
  }
  return {};
}

const TensorPlace* TensorTable::find(std::string_view name) const {
  if (const std::optional<ExpertTensor> id = expert_in(name, model_)) {
    return id->layer < layers_ ? &expert(id->layer, id->expert, id->part) : nullptr;
  }
  const auto found = trunk_.find(name);
  if (found == trunk_.end() || found->second.layer >= layers_) return nullptr;
  return &found->second.place;
}

const TensorPlace& TensorTable::expert(int layer, int expert, ExpertPart part) const {
  return experts_[static_cast<std::size_t>(layer)][slot_index(expert, part)].place;
}

void TensorTable::for_each_expert(
    int layer, const std::function<void(std::string_view name, const Slot& slot)>& body) const {
  const LayerExperts& experts = experts_[static_cast<std::size_t>(layer)];
  if (experts.empty()) return;
  for (const int expert : in_text_order(model_.experts)) {
    for (int part = 0; part < kExpertParts; ++part) {
      body(expert_tensor_name(layer, expert, ExpertPart(part)),
           experts[slot_index(expert, ExpertPart(part))]);
    }
  }
}

std::vector<Checkpoint::NamedTensor> TensorTable::named(bool in_use) const {
  std::vector<Checkpoint::NamedTensor> tensors;
  const auto add_found = [&tensors](std::string_view name, const Slot& entry) {
    if (entry.found) tensors.push_back({std::string(name), &entry.place});
  };
  for (const auto& [name, entry] : trunk_) {
    if ((entry.layer < layers_) == in_use) add_found(name, entry);
  }
  if (!in_use) {
    for (const auto& [name, entry] : foreign_) add_found(name, entry);
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  // Trunk and foreign names can interleave; the experts come in name order by themselves.
  std::sort(tensors.begin(), tensors.end(), by_name);
  const auto others = static_cast<std::ptrdiff_t>(tensors.size());
  for (const int layer : in_text_order(model_.layers)) {
    if ((layer < layers_) == in_use) for_each_expert(layer, add_found);
  }
  std::inplace_merge(tensors.begin(), tensors.begin() + others, tensors.end(), by_name);
  return tensors;
}

}  // namespace k3
