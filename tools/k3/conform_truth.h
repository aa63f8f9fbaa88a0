// What every expert's bytes are, read from the shards themselves.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/checkpoint/checkpoint.h"

namespace k3::cli {

// One thread. Remembers the checksums of what it has read, not the bytes.
class ExpertTruth {
 public:
  using Sums = std::array<std::uint64_t, kExpertParts>;  // XXH3-64 of each part

  // Opens every shard. Errors name the file.
  static Result<ExpertTruth> open(Checkpoint checkpoint);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  std::uint32_t first_layer() const;  // with routed experts
  std::uint32_t layers() const;       // in use, dense ones included
  std::uint32_t experts() const;      // of each layer that has any
  std::uint64_t part_bytes(int part) const;
  std::uint64_t expert_bytes() const;
  std::uint64_t total_experts() const;

  // Layer and expert must exist. kWeights when a shard cannot be read.
  Result<Sums> sums(std::uint32_t layer, std::uint32_t expert);
  Result<std::vector<std::byte>> read(std::uint32_t layer, std::uint32_t expert, int part) const;

 private:
  explicit ExpertTruth(Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)) {}
  Result<std::vector<std::byte>> read(const TensorPlace& place) const;

  Checkpoint checkpoint_;
  std::vector<UniqueFd> shards_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Sums> known_;
};

// XXH3-64 of each part.
ExpertTruth::Sums sums_of(const std::array<std::span<const std::byte>, kExpertParts>& parts);

}  // namespace k3::cli
