#include "tools/k3/conform_truth.h"

#include "common/base/file.h"
#include "common/base/hash.h"

namespace k3::cli {

Result<ExpertTruth> ExpertTruth::open(Checkpoint checkpoint) {
  ExpertTruth truth(std::move(checkpoint));
  for (const Shard& shard : truth.checkpoint_.shards()) {
    K3_ASSIGN(truth.shards_.emplace_back(), open_for_reading(shard.path, ErrorCode::kWeights));
  }
  return truth;
}

std::uint32_t ExpertTruth::first_layer() const {
  return static_cast<std::uint32_t>(checkpoint_.config().dense_layers);
}

std::uint32_t ExpertTruth::layers() const {
  return static_cast<std::uint32_t>(checkpoint_.config().layers);
}

std::uint32_t ExpertTruth::experts() const {
  return static_cast<std::uint32_t>(checkpoint_.config().experts);
}

std::uint64_t ExpertTruth::part_bytes(int part) const {
  return expert_part_bytes(checkpoint_.config(), static_cast<ExpertPart>(part));
}

std::uint64_t ExpertTruth::expert_bytes() const { return k3::expert_bytes(checkpoint_.config()); }

std::uint64_t ExpertTruth::total_experts() const {
  return std::uint64_t{layers() - first_layer()} * experts();
}

Result<ExpertTruth::Sums> ExpertTruth::sums(std::uint32_t layer, std::uint32_t expert) {
  const auto found = known_.find({layer, expert});
  if (found != known_.end()) return found->second;
  Sums sums{};
  const std::vector<TensorPlace> places =
      checkpoint_.expert(static_cast<int>(layer), static_cast<int>(expert));
  for (int part = 0; part < kExpertParts; ++part) {
    K3_ASSIGN(const std::vector<std::byte> bytes, read(places[part]));
    sums[part] = checksum(bytes);
  }
  return known_.emplace(std::pair(layer, expert), sums).first->second;
}

Result<std::vector<std::byte>> ExpertTruth::read(std::uint32_t layer, std::uint32_t expert,
                                                 int part) const {
  return read(checkpoint_.expert(static_cast<int>(layer), static_cast<int>(expert))[part]);
}

Result<std::vector<std::byte>> ExpertTruth::read(const TensorPlace& place) const {
  std::vector<std::byte> bytes(place.bytes);
  K3_TRY(read_exactly(shards_[place.shard].get(), place.offset, bytes,
                      checkpoint_.shards()[place.shard].path));
  return bytes;
}

ExpertTruth::Sums sums_of(const std::array<std::span<const std::byte>, kExpertParts>& parts) {
  ExpertTruth::Sums sums{};
  for (int part = 0; part < kExpertParts; ++part) sums[part] = checksum(parts[part]);
  return sums;
}

}  // namespace k3::cli
