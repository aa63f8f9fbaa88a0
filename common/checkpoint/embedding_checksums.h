// Checksums of the embedding: its rows are read one by one, so each has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/checkpoint.h"

namespace k3 {

// XXH3-64 of each row of the embedding, by token id. `progress` is called with the bytes read so
// far. kWeights when it is missing or cannot be read.
Result<std::vector<std::uint64_t>> embedding_checksums(
    const Checkpoint& checkpoint, const std::function<void(std::uint64_t)>& progress);

}  // namespace k3
