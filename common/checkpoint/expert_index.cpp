// Building, writing and reading the expert index; the file format is in docs/formats.md.
#include "common/checkpoint/expert_index.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <span>

#include "common/base/check.h"
#include "common/base/file.h"
#include "common/base/hash.h"
#include "common/checkpoint/binary_file.h"

namespace k3 {
namespace {

constexpr std::array<char, 8> kMagic = {'K', '3', 'E', 'X', 'P', 'E', 'R', 'T'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMaxIndexBytes = std::size_t{1} << 30;

// What the file holds, little-endian, in this order: FileHeader, one FileLocation an expert, the
// FileExtents, the shard names (u32 length and bytes each), XXH3-64 of all before it.
struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t layers;
  std::uint32_t dense_layers;
  std::uint32_t experts;
  std::uint32_t shards;
  std::uint32_t extents;
  std::array<std::uint64_t, kExpertParts> part_bytes;
  std::array<char, kFingerprintChars> fingerprint;
};
static_assert(sizeof(FileHeader) == 112);

struct FileLocation {
  std::uint64_t checksum;  // 0 when has_checksum is
  std::uint32_t extents;   // 1 to 6; they follow those of the expert before
  std::uint32_t has_checksum;
};
static_assert(sizeof(FileLocation) == 16);

struct FileExtent {
  std::uint64_t offset;
  std::uint64_t length;
  std::uint32_t shard;
  std::uint32_t reserved;  // 0
};
static_assert(sizeof(FileExtent) == 24);

// Lays the six parts end to end in the slot; parts that also lie end to end in a file are one read.
ExpertLocation locate(const std::vector<TensorPlace>& parts) {
  ExpertLocation location;
  std::uint64_t slot_offset = 0;
  for (const TensorPlace& part : parts) {
    std::vector<ExpertExtent>& extents = location.extents;
    if (!extents.empty() && extents.back().shard == part.shard &&
        extents.back().offset + extents.back().length == part.offset) {
      extents.back().length += part.bytes;
    } else {
      extents.push_back({part.shard, part.offset, part.bytes, slot_offset});
    }
    slot_offset += part.bytes;
  }
  return location;
}

Status add_checksums(ExpertIndex& index,
                     const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  std::vector<UniqueFd> files;
  for (const std::filesystem::path& shard : index.shards) {
    K3_ASSIGN(UniqueFd fd, open_for_reading(shard, ErrorCode::kWeights));
    files.push_back(std::move(fd));
  }
  std::vector<std::byte> slot(index.expert_bytes());
  const std::span<std::byte> bytes(slot);
  for (std::size_t i = 0; i < index.locations.size(); ++i) {
    for (const ExpertExtent& extent : index.locations[i].extents) {
      K3_TRY(read_exactly(files[extent.shard].get(), extent.offset,
                          bytes.subspan(extent.slot_offset, extent.length),
                          index.shards[extent.shard]));
    }
    index.locations[i].checksum = checksum(bytes);
    if (progress) progress(i + 1, index.locations.size());
  }
  return {};
}

std::size_t moe_experts(const ModelConfig& config) {
  return static_cast<std::size_t>(config.layers - config.dense_layers) *
         static_cast<std::size_t>(config.experts);
}

std::array<std::uint64_t, kExpertParts> part_bytes_of(const ModelConfig& config) {
  std::array<std::uint64_t, kExpertParts> bytes{};
  for (int part = 0; part < kExpertParts; ++part) {
    bytes[static_cast<std::size_t>(part)] = expert_part_bytes(config, ExpertPart(part));
  }
  return bytes;
}

std::string place_of(const ModelConfig& config, std::size_t location) {
  const auto experts = static_cast<std::size_t>(config.experts);
  return fmt::format("layer {} expert {}",
                     static_cast<std::size_t>(config.dense_layers) + location / experts,
                     location % experts);
}

Status check_header(const FileHeader& header, const Checkpoint& checkpoint,
                    const std::string& file) {
  const std::string_view fingerprint(header.fingerprint.data(), header.fingerprint.size());
  if (fingerprint != checkpoint.fingerprint()) {
    return fail(ErrorCode::kWeights,
                "{}: made from checkpoint {} with {} layers, this one is {} with {}; run k3 index "
                "again",
                file, fingerprint, header.layers, checkpoint.fingerprint(),
                checkpoint.config().layers);
  }
  const ModelConfig& config = checkpoint.config();
  if (header.layers != static_cast<std::uint32_t>(config.layers) ||
      header.dense_layers != static_cast<std::uint32_t>(config.dense_layers) ||
      header.experts != static_cast<std::uint32_t>(config.experts) ||
      header.part_bytes != part_bytes_of(config)) {
    return fail(ErrorCode::kWeights,
                "{}: {} layers ({} dense) of {} experts, the configuration has {} ({}) of {}, or "
                "experts of another size",
                file, header.layers, header.dense_layers, header.experts, config.layers,
                config.dense_layers, config.experts);
  }
  return {};
}

// The checkpoint's number of each shard the file names.
Result<std::vector<std::uint32_t>> read_shard_names(BinaryReader& reader, std::uint32_t count,
                                                    const Checkpoint& checkpoint) {
  std::map<std::string, std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < checkpoint.shards().size(); ++i) {
    numbers[checkpoint.shards()[i].path.filename().string()] = i;
  }
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < count; ++i) {
    K3_ASSIGN(const std::uint32_t length, reader.take<std::uint32_t>());
    K3_ASSIGN(const std::string name, reader.take_text(length));
    const auto number = numbers.find(name);
    if (number == numbers.end()) {
      return fail(ErrorCode::kWeights, "{}: names shard {}, the checkpoint has no such file",
                  reader.file(), name);
    }
    found.push_back(number->second);
  }
  return found;
}

// Bounds of one extent, and that the slot is filled without gap or overlap up to `slot_offset`.
Status check_extent(const ExpertExtent& extent, const Shard& shard, std::uint64_t expert_bytes,
                    const std::string& what) {
  if (extent.length == 0 || extent.length > expert_bytes - extent.slot_offset) {
    return fail(ErrorCode::kWeights, "{}: {} bytes at {} of a slot of {}", what, extent.length,
                extent.slot_offset, expert_bytes);
  }
  if (extent.offset > shard.file_bytes || extent.length > shard.file_bytes - extent.offset) {
    return fail(ErrorCode::kWeights, "{}: {} bytes at {} of {}, which has {}", what, extent.length,
                extent.offset, shard.path.string(), shard.file_bytes);
  }
  return {};
}

// Turns the file's records into the index's locations; every number is checked before it is used.
Status fill_locations(ExpertIndex& index, const std::vector<FileLocation>& locations,
                      const std::vector<FileExtent>& extents,
                      const std::vector<std::uint32_t>& shard_numbers, const Checkpoint& checkpoint,
                      const std::string& file) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < locations.size(); ++i) {
    const FileLocation& record = locations[i];
    const auto what = [&] { return fmt::format("{}: {}", file, place_of(checkpoint.config(), i)); };
    if (record.extents == 0 || record.extents > kExpertParts ||
        record.extents > extents.size() - next) {
      return fail(ErrorCode::kWeights, "{}: {} extents, expected 1 to {}, {} are left", what(),
                  record.extents, kExpertParts, extents.size() - next);
    }
    ExpertLocation& location = index.locations.emplace_back();
    if (record.has_checksum != 0) location.checksum = record.checksum;
    std::uint64_t slot_offset = 0;
    for (std::uint32_t e = 0; e < record.extents; ++e, ++next) {
      const FileExtent& from = extents[next];
      if (from.shard >= shard_numbers.size()) {
        return fail(ErrorCode::kWeights, "{}: shard number {} of {}", what(), from.shard,
                    shard_numbers.size());
      }
      const ExpertExtent extent{shard_numbers[from.shard], from.offset, from.length, slot_offset};
      K3_TRY(check_extent(extent, checkpoint.shards()[extent.shard], index.expert_bytes(), what()));
      location.extents.push_back(extent);
      slot_offset += from.length;
    }
    if (slot_offset != index.expert_bytes()) {
      return fail(ErrorCode::kWeights, "{}: extents hold {} bytes, an expert has {}", what(),
                  slot_offset, index.expert_bytes());
    }
  }
  if (next != extents.size()) {
    return fail(ErrorCode::kWeights, "{}: {} extents, the experts use {}", file, extents.size(),
                next);
  }
  return {};
}

}  // namespace

std::uint64_t ExpertIndex::expert_bytes() const {
  return std::accumulate(part_bytes.begin(), part_bytes.end(), std::uint64_t{0});
}

const ExpertLocation& ExpertIndex::at(int layer, int expert) const {
  K3_CHECK(layer >= dense_layers && layer < layers && expert >= 0 && expert < experts,
           fmt::format("layer {} expert {}", layer, expert));
  return locations[static_cast<std::size_t>(layer - dense_layers) *
                       static_cast<std::size_t>(experts) +
                   static_cast<std::size_t>(expert)];
}

Result<ExpertIndex> build_expert_index(
    const Checkpoint& checkpoint, bool checksums,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const ModelConfig& config = checkpoint.config();
  ExpertIndex index{.fingerprint = checkpoint.fingerprint(),
                    .shards = {},
                    .layers = config.layers,
                    .dense_layers = config.dense_layers,
                    .experts = config.experts,
                    .part_bytes = part_bytes_of(config),
                    .locations = {}};
  for (const Shard& shard : checkpoint.shards()) index.shards.push_back(shard.path);
  index.locations.reserve(moe_experts(config));
  for (int layer = config.dense_layers; layer < config.layers; ++layer) {
    for (int expert = 0; expert < config.experts; ++expert) {
      index.locations.push_back(locate(checkpoint.expert(layer, expert)));
    }
  }
  if (checksums) K3_TRY(add_checksums(index, progress));
  return index;
}

Status write_expert_index(const ExpertIndex& index, const std::filesystem::path& directory) {
  FileHeader header{.magic = kMagic,
                    .version = kVersion,
                    .layers = static_cast<std::uint32_t>(index.layers),
                    .dense_layers = static_cast<std::uint32_t>(index.dense_layers),
                    .experts = static_cast<std::uint32_t>(index.experts),
                    .shards = static_cast<std::uint32_t>(index.shards.size()),
                    .extents = 0,
                    .part_bytes = index.part_bytes,
                    .fingerprint = fingerprint_chars(index.fingerprint)};
  std::string locations;
  std::string extents;
  for (const ExpertLocation& location : index.locations) {
    append_bytes(locations,
                 FileLocation{.checksum = location.checksum.value_or(0),
                              .extents = static_cast<std::uint32_t>(location.extents.size()),
                              .has_checksum = location.checksum.has_value() ? 1u : 0u});
    for (const ExpertExtent& extent : location.extents) {
      append_bytes(extents, FileExtent{extent.offset, extent.length, extent.shard, 0});
      ++header.extents;
    }
  }
  std::string content;
  append_bytes(content, header);
  content += locations;
  content += extents;
  for (const std::filesystem::path& shard : index.shards) {
    const std::string name = shard.filename().string();
    append_bytes(content, static_cast<std::uint32_t>(name.size()));
    content += name;
  }
  append_bytes(content, checksum(std::as_bytes(std::span(content))));
  return write_file_atomically(directory / kExpertIndexFile, content);
}

Result<ExpertIndex> read_expert_index(const std::filesystem::path& directory,
                                      const Checkpoint& checkpoint) {
  const std::filesystem::path path = directory / kExpertIndexFile;
  const std::string file = path.string();
  Result<std::string> content = read_text_file(path, kMaxIndexBytes);
  if (!content) return fail(ErrorCode::kWeights, "{}", content.error().message);
  std::string_view records = *content;
  // Kind and version first: another version may keep its checksum elsewhere.
  K3_ASSIGN(const FileHeader header, BinaryReader(records, file).take<FileHeader>());
  K3_TRY(check_kind(header.magic, kMagic, header.version, kVersion, file));
  K3_TRY(take_trailing_checksum(records, file));
  K3_TRY(check_header(header, checkpoint, file));

  ExpertIndex index{.fingerprint = checkpoint.fingerprint(),
                    .shards = {},
                    .layers = checkpoint.config().layers,
                    .dense_layers = checkpoint.config().dense_layers,
                    .experts = checkpoint.config().experts,
                    .part_bytes = header.part_bytes,
                    .locations = {}};
  for (const Shard& shard : checkpoint.shards()) index.shards.push_back(shard.path);
  BinaryReader reader(records.substr(sizeof header), file);
  K3_ASSIGN(const std::vector<FileLocation> locations,
            reader.take_many<FileLocation>(moe_experts(checkpoint.config())));
  K3_ASSIGN(const std::vector<FileExtent> extents, reader.take_many<FileExtent>(header.extents));
  K3_ASSIGN(const std::vector<std::uint32_t> shard_numbers,
            read_shard_names(reader, header.shards, checkpoint));
  index.locations.reserve(locations.size());
  K3_TRY(fill_locations(index, locations, extents, shard_numbers, checkpoint, file));
  return index;
}

}  // namespace k3
