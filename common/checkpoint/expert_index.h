// The expert index: where every routed expert lies, built once by `k3 index` (docs/formats.md).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"

namespace k3 {

// One contiguous read of an expert: covers bytes [slot_offset, slot_offset + length) of its slot. A
// slot holds the six parts back to back in ExpertPart order.
struct ExpertExtent {
  std::uint32_t shard = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t slot_offset = 0;
};

struct ExpertLocation {
  std::vector<ExpertExtent> extents;      // 1 (usual) to 6, merged where the file allows
  std::optional<std::uint64_t> checksum;  // XXH3-64 of the slot's bytes
};

struct ExpertIndex {
  std::string fingerprint;
  std::vector<std::filesystem::path> shards;
  int layers = 0;  // layers in use, dense ones included
  int dense_layers = 0;
  int experts = 0;  // per MoE layer
  std::array<std::uint64_t, kExpertParts> part_bytes{};
  std::vector<ExpertLocation> locations;  // [(layer - dense_layers) * experts + expert]

  std::uint64_t expert_bytes() const;
  const ExpertLocation& at(int layer, int expert) const;  // in range (K3_CHECK)
};

inline constexpr const char* kExpertIndexFile = "experts.k3x";

// Builds the index from the checkpoint's tensor places. With `checksums` every expert is read and
// hashed (kWeights on a read error); `progress` is called with experts done and total.
Result<ExpertIndex> build_expert_index(
    const Checkpoint& checkpoint, bool checksums,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

// Writes DIRECTORY/experts.k3x atomically.
Status write_expert_index(const ExpertIndex& index, const std::filesystem::path& directory);

// Reads DIRECTORY/experts.k3x. kWeights when truncated, corrupt, of an unknown version, out of the
// shards' bounds, or of another checkpoint (both fingerprints named).
Result<ExpertIndex> read_expert_index(const std::filesystem::path& directory,
                                      const Checkpoint& checkpoint);

}  // namespace k3
