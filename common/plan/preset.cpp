#include "common/plan/preset.h"

namespace k3 {
namespace {

constexpr std::uint64_t kGigabyte = 1'000'000'000;
constexpr std::uint64_t kSizedPercent = 95;
constexpr std::uint64_t kAutoPercent = 80;
constexpr std::uint64_t kMaxPercent = 92;

constexpr std::uint64_t share(std::uint64_t bytes, std::uint64_t percent) {
  return bytes / 100 * percent;
}

}  // namespace

std::optional<std::uint64_t> preset_bytes(Preset preset,
                                          std::optional<std::uint64_t> usable_bytes) {
  const std::uint64_t usable = usable_bytes.value_or(kUnknownUsableBytes);
  switch (preset) {
    case Preset::kAuto:
      return share(usable, kAutoPercent);
    case Preset::kFloor:
      return std::nullopt;
    case Preset::kLaptop:
      return share(8 * kGigabyte, kSizedPercent);
    case Preset::kDesktop:
      return share(32 * kGigabyte, kSizedPercent);
    case Preset::kWorkstation:
      return share(96 * kGigabyte, kSizedPercent);
    case Preset::kServer:
      return share(128 * kGigabyte, kSizedPercent);
    case Preset::kMax:
      return share(usable, kMaxPercent);
  }
  return std::nullopt;
}

}  // namespace k3
