// Measures what dealing with the other processes costs a pass, besides waiting for weights.
#pragma once

#include <chrono>
#include <cstdint>

namespace k3::compute {

// Adds the wall clock of its own life to `spent_ns`, less what `waited_ns` grew by meanwhile. Both
// borrowed. Two on one sum must not overlap.
class MessagingTimer {
 public:
  explicit MessagingTimer(std::uint64_t& spent_ns, const std::uint64_t& waited_ns = kNoWaits)
      : spent_ns_(spent_ns), waited_ns_(waited_ns), waited_before_(waited_ns) {}
  MessagingTimer(const MessagingTimer&) = delete;
  MessagingTimer& operator=(const MessagingTimer&) = delete;
  ~MessagingTimer() {
    const std::chrono::nanoseconds life = std::chrono::steady_clock::now() - start_;
    spent_ns_ += static_cast<std::uint64_t>(life.count()) - (waited_ns_ - waited_before_);
  }

 private:
  static constexpr std::uint64_t kNoWaits = 0;

  std::uint64_t& spent_ns_;
  const std::uint64_t& waited_ns_;
  std::uint64_t waited_before_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace k3::compute
