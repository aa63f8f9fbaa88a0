#include "tools/k3/verify_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/checkpoint/embedding_checksums.h"
#include "common/checkpoint/model_tensors.h"

namespace k3::cli {
namespace {

constexpr std::uint64_t kChunkBytes = std::uint64_t{8} << 20;  // a whole number of any element

constexpr std::byte kNanScale{255};

// Keeps one file open, the one read last: all passes go through the files in order.
class FileReader {
 public:
  Status read(const std::filesystem::path& path, std::uint64_t offset, std::span<std::byte> into) {
    if (path != path_ || !fd_.valid()) {
      K3_ASSIGN(fd_, open_for_reading(path, ErrorCode::kWeights));
      path_ = path;
    }
    return read_exactly(fd_.get(), offset, into, path);
  }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
};

// Index of the first element with all exponent bits set: an infinity or a NaN.
template <class Word>
std::optional<std::uint64_t> first_not_finite(std::span<const std::byte> data, Word exponent) {
  for (std::size_t at = 0; at + sizeof(Word) <= data.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, data.data() + at, sizeof(Word));
    if ((word & exponent) == exponent) return at / sizeof(Word);
  }
  return std::nullopt;
}

// Index of the first element in `data` that is no legal value of the tensor, and what it is.
std::optional<std::pair<std::uint64_t, std::string_view>> first_unsound(
    const Checkpoint::NamedTensor& tensor, std::span<const std::byte> data) {
  std::optional<std::uint64_t> index;
  switch (tensor.place->dtype) {
    case DType::kBf16:
      index = first_not_finite<std::uint16_t>(data, 0x7f80);
      if (index) return std::pair(*index, "not finite");
      return std::nullopt;
    case DType::kF32:
      index = first_not_finite<std::uint32_t>(data, 0x7f800000);
      if (index) return std::pair(*index, "not finite");
      return std::nullopt;
    default:
      break;
  }
  if (!tensor.name.ends_with(".weight_scale")) return std::nullopt;
  const auto found = std::find(data.begin(), data.end(), kNanScale);
  if (found == data.end()) return std::nullopt;
  return std::pair(static_cast<std::uint64_t>(found - data.begin()), "scale 255, NaN");
}

// Reads the extents of one unit or expert into `slot`.
template <class Extents, class PathOf>
Status read_extents(FileReader& reader, const Extents& extents, const PathOf& path_of,
                    std::span<std::byte> slot) {
  for (const auto& [file, offset, length, slot_offset] : extents) {
    K3_TRY(reader.read(path_of(file), offset, slot.subspan(slot_offset, length)));
  }
  return {};
}

std::optional<std::string> checksum_problem(const Status& read, std::span<const std::byte> data,
                                            std::uint64_t expected) {
  if (!read) return read.error().message;
  const std::uint64_t found = checksum(data);
  if (found == expected) return std::nullopt;
  return fmt::format("checksum {:016x}, expected {:016x}", found, expected);
}

// Whether the tensor is part of an expert whose checksum `index` knows.
bool has_checksum(const ExpertIndex* index, std::string_view tensor) {
  const auto part = index ? parse_expert_tensor_name(tensor) : std::nullopt;
  return part && index->at(part->layer, part->expert).checksum.has_value();
}

}  // namespace

void ContentsCheck::check_tensors(const Checkpoint& checkpoint, const ExpertIndex* index) {
  std::vector<Checkpoint::NamedTensor> tensors = checkpoint.tensors();
  std::erase_if(tensors, [index](const auto& tensor) { return has_checksum(index, tensor.name); });
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.place->shard, a.place->offset) < std::tie(b.place->shard, b.place->offset);
  });
  std::uint64_t total = 0;
  for (const auto& tensor : tensors) total += tensor.place->bytes;
  start(total);

  FileReader reader;
  std::vector<std::byte> buffer(kChunkBytes);
  for (const Checkpoint::NamedTensor& tensor : tensors) {
    const TensorPlace& place = *tensor.place;
    const std::filesystem::path& path = checkpoint.shards()[place.shard].path;
    bool sound = true;
    for (std::uint64_t at = 0; at < place.bytes; at += kChunkBytes) {
      const auto chunk = std::span(buffer).first(std::min(kChunkBytes, place.bytes - at));
      advance(chunk.size());
      if (!sound) continue;  // one finding a tensor; the progress still adds up
      if (const Status read = reader.read(path, place.offset + at, chunk); !read) {
        add_finding(checkpoint, tensor, read.error().message);
        sound = false;
      } else if (const auto unsound = first_unsound(tensor, chunk)) {
        const std::uint64_t before = at / bytes_of(place.dtype);
        add_finding(checkpoint, tensor,
                    fmt::format("value {} is {}", before + unsound->first, unsound->second));
        sound = false;
      }
    }
  }
}

void ContentsCheck::check_experts(const Checkpoint& checkpoint, const ExpertIndex& index) {
  std::vector<std::pair<std::size_t, const ExpertLocation*>> locations;
  for (std::size_t i = 0; i < index.locations.size(); ++i) {
    const ExpertLocation& location = index.locations[i];
    if (location.checksum && !location.extents.empty()) locations.emplace_back(i, &location);
  }
  std::sort(locations.begin(), locations.end(), [](const auto& a, const auto& b) {
    const ExpertExtent& first = a.second->extents.front();
    const ExpertExtent& second = b.second->extents.front();
    return std::tie(first.shard, first.offset) < std::tie(second.shard, second.offset);
  });
  start(locations.size() * index.expert_bytes());

  FileReader reader;
  std::vector<std::byte> slot(index.expert_bytes());
  const auto path_of = [&](std::uint32_t shard) { return index.shards[shard]; };
  for (const auto& [number, location] : locations) {
    const int layer = index.dense_layers + static_cast<int>(number) / index.experts;
    const int expert = static_cast<int>(number) % index.experts;
    const Status read = read_extents(reader, location->extents, path_of, slot);
    if (const auto problem = checksum_problem(read, slot, *location->checksum)) {
      findings_.push_back(fmt::format("layer {} expert {}: {}", layer, expert, *problem));
    } else {
      check_parts(checkpoint, layer, expert, slot);
    }
    advance(slot.size());
  }
}

void ContentsCheck::check_parts(const Checkpoint& checkpoint, int layer, int expert,
                                std::span<const std::byte> slot) {
  const std::vector<TensorPlace> places = checkpoint.expert(layer, expert);
  for (int part = 0; part < kExpertParts; ++part) {
    const TensorPlace& place = places[static_cast<std::size_t>(part)];
    const Checkpoint::NamedTensor tensor{expert_tensor_name(layer, expert, ExpertPart(part)),
                                         &place};
    if (const auto unsound = first_unsound(tensor, slot.first(place.bytes))) {
      add_finding(checkpoint, tensor,
                  fmt::format("value {} is {}", unsound->first, unsound->second));
    }
    slot = slot.subspan(place.bytes);
  }
}

void ContentsCheck::check_units(const Checkpoint& checkpoint, const UnitTable& table) {
  start(table.pass_bytes());
  FileReader reader;
  std::vector<std::byte> buffer(table.largest_unit_bytes());
  const auto path_of = [&](std::uint32_t file) { return table.files[file]; };
  for (std::size_t number = 0; number < table.units.size(); ++number) {
    const Unit& unit = table.units[number];
    const std::span<std::byte> bytes = std::span(buffer).first(unit.bytes);
    if (unit.checksum) {
      const Status read = read_extents(reader, unit.extents, path_of, bytes);
      if (const auto problem = checksum_problem(read, bytes, *unit.checksum)) {
        findings_.push_back(fmt::format("packed trunk: unit {}: {}", number, *problem));
      }
    }
    advance(unit.bytes);
  }
  if (!table.embedding_checksums.empty()) check_embedding(checkpoint, table.embedding_checksums);
}

void ContentsCheck::check_embedding(const Checkpoint& checkpoint,
                                    const std::vector<std::uint64_t>& expected) {
  const auto found = embedding_checksums(checkpoint, [](std::uint64_t) {});
  if (!found) {
    findings_.push_back(found.error().message);
    return;
  }
  for (std::size_t id = 0; id < found->size() && id < expected.size(); ++id) {
    if ((*found)[id] == expected[id]) continue;
    findings_.push_back(fmt::format("embedding row of token {}: checksum {:016x}, expected {:016x}",
                                    id, (*found)[id], expected[id]));
  }
}

void ContentsCheck::add_finding(const Checkpoint& checkpoint, const Checkpoint::NamedTensor& tensor,
                                std::string_view what) {
  const std::filesystem::path& path = checkpoint.shards()[tensor.place->shard].path;
  findings_.push_back(fmt::format("{}: tensor {}: {}", path.string(), tensor.name, what));
}

void ContentsCheck::start(std::uint64_t total) {
  done_ = 0;
  total_ = total;
}

void ContentsCheck::advance(std::uint64_t bytes) {
  done_ += bytes;
  progress_(done_, total_);
}

}  // namespace k3::cli
