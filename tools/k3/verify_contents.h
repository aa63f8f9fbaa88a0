// Reads every byte of a checkpoint's weights and reports what cannot be a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/expert_index.h"
#include "common/checkpoint/unit_table.h"

namespace k3::cli {

// Findings are sentences that name tensor or expert, file and place. A read that fails is a
// finding, and the work goes on. One thread.
class ContentsCheck {
 public:
  // Called with bytes read and bytes to read by the check under way.
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

  explicit ContentsCheck(Progress progress) : progress_(std::move(progress)) {}

  // Trunk tensors hold finite numbers only; no expert scale is 255 (the E8M0 code of NaN). Leaves
  // out the experts that check_experts() reads, those with a checksum in `index`; null: none.
  void check_tensors(const Checkpoint& checkpoint, const ExpertIndex* index);

  // Every expert with a checksum in `index`, which belongs to `checkpoint`, matches it; their
  // scales as in check_tensors().
  void check_experts(const Checkpoint& checkpoint, const ExpertIndex& index);

  // Every unit with a checksum in the table matches it, and so does every embedding row.
  void check_units(const Checkpoint& checkpoint, const UnitTable& table);

  const std::vector<std::string>& findings() const { return findings_; }

 private:
  // `slot` holds the six parts of a routed expert.
  void check_parts(const Checkpoint& checkpoint, int layer, int expert,
                   std::span<const std::byte> slot);
  void check_embedding(const Checkpoint& checkpoint, const std::vector<std::uint64_t>& expected);
  void add_finding(const Checkpoint& checkpoint, const Checkpoint::NamedTensor& tensor,
                   std::string_view what);
  void start(std::uint64_t total);
  void advance(std::uint64_t bytes);

  Progress progress_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
  std::vector<std::string> findings_;
};

}  // namespace k3::cli
