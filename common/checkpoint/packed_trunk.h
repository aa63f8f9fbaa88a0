// The packed trunk: one streaming file of units, written by `k3 pack` (docs/formats.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/unit_table.h"

namespace k3 {

inline constexpr const char* kPackedTrunkFile = "trunk.k3t";

// How bf16 matrices are stored: as 12-bit codes (common/codec), or as they are. Both are exact.
enum class PackAs { kCoded, kRaw };

// Writes DIRECTORY/trunk.k3t from the shards: header, unit table, units 4 KiB aligned, a checksum
// each, one of each embedding row (the rows stay in the shards), one over the table. `unit_bytes`
// counts before coding. The file appears under its name only when complete. From sparse
// shards it is sparse, and no disk is reserved for it. `progress` is called
// with bytes done and total. Errors: kOutput for the target, kWeights for the source.
Status write_packed_trunk(const Checkpoint& checkpoint, const std::filesystem::path& directory,
                          std::uint64_t unit_bytes, PackAs as,
                          const std::function<void(std::uint64_t, std::uint64_t)>& progress);

// Reads the unit table of DIRECTORY/trunk.k3t. kWeights when it is truncated, its checksum is
// wrong, its version unknown, or it was packed from another checkpoint (both fingerprints named).
Result<UnitTable> open_packed_trunk(const std::filesystem::path& directory,
                                    const Checkpoint& checkpoint);

}  // namespace k3
