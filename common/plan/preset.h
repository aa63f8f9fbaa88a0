// Named memory budgets of a whole pipeline.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace k3 {

enum class Preset {
  kAuto,         // 80 % of the usable memory
  kFloor,        // the least that still streams: see plan_run
  kLaptop,       // 8 GB
  kDesktop,      // 32 GB
  kWorkstation,  // 96 GB
  kServer,       // 128 GB
  kMax           // 92 % of the usable memory
};

struct NamedPreset {
  std::string_view name;
  Preset preset = Preset::kAuto;
};

inline constexpr std::array<NamedPreset, 7> kPresets = {{{"auto", Preset::kAuto},
                                                         {"floor", Preset::kFloor},
                                                         {"laptop", Preset::kLaptop},
                                                         {"desktop", Preset::kDesktop},
                                                         {"workstation", Preset::kWorkstation},
                                                         {"server", Preset::kServer},
                                                         {"max", Preset::kMax}}};

// Bytes a pipeline of `preset` may hold together: 95 % of a preset's gigabytes, so that a hard
// limit of that size is never met, or a share of `usable_bytes`. A known `usable_bytes` never makes
// a sized preset smaller: what does not fit is refused. Unknown counts as kUnknownUsableBytes.
// Empty for kFloor, whose size follows from the model alone.
inline constexpr std::uint64_t kUnknownUsableBytes = 4'000'000'000;
std::optional<std::uint64_t> preset_bytes(Preset preset, std::optional<std::uint64_t> usable_bytes);

}  // namespace k3
