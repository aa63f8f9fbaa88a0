#include "services/compute/local_experts.h"

#include <algorithm>

#include "common/base/check.h"
#include "services/compute/expert_view.h"

namespace k3::compute {

Result<std::unique_ptr<LocalExperts>> LocalExperts::open(const ModelConfig& config,
                                                         ExpertIndex index) {
  K3_ASSIGN(LocalReads reads, LocalReads::open(index.shards));
  return std::unique_ptr<LocalExperts>(
      new LocalExperts(config, std::move(index), std::move(reads)));
}

LocalExperts::LocalExperts(const ModelConfig& config, ExpertIndex index, LocalReads reads)
    : config_(config), index_(std::move(index)), buffers_(kBuffers), reads_(std::move(reads)) {
  for (Buffer& buffer : buffers_) buffer.resize(index_.expert_bytes());
}

LocalExperts::~LocalExperts() = default;

Status LocalExperts::fetch(int layer, std::span<const std::uint32_t> experts) {
  K3_CHECK(experts_.empty(), "the previous demand is not released");
  layer_ = layer;
  experts_.assign(experts.begin(), experts.end());
  requested_ = taken_ = 0;
  read_ahead();
  return {};
}

void LocalExperts::read_ahead() {
  for (; requested_ < std::min(taken_ + buffers_.size(), experts_.size()); ++requested_) {
    const std::uint32_t expert = experts_[requested_];
    const ExpertLocation& location = index_.at(layer_, static_cast<int>(expert));
    const std::span<std::byte> into = buffer(requested_);
    ReadJob job{.id = requested_,
                .label = fmt::format("layer {} expert {}", layer_, expert),
                .checksum = location.checksum};
    for (const ExpertExtent& extent : location.extents) {
      job.extents.push_back(
          {extent.shard, extent.offset, into.subspan(extent.slot_offset, extent.length)});
    }
    reads_.submit(std::move(job));
  }
}

Result<ExpertView> LocalExperts::next() {
  K3_CHECK(taken_ < experts_.size(), "more experts taken than asked for");
  read_ahead();  // into what the expert handed out before no longer needs
  const std::size_t place = taken_++;
  K3_TRY(reads_.wait(place));
  ExpertParts parts{};
  const auto* part = reinterpret_cast<const std::uint8_t*>(buffer(place).data());
  for (int i = 0; i < kExpertParts; ++i) {
    parts[i] = part;
    part += index_.part_bytes[i];
  }
  return expert_view(config_, experts_[place], parts);
}

void LocalExperts::release() {
  // Nobody needs what is under way, but its buffers are free only when it has ended.
  for (; taken_ < requested_; ++taken_) (void)reads_.wait(taken_);
  experts_.clear();
  requested_ = taken_ = 0;
}

}  // namespace k3::compute
