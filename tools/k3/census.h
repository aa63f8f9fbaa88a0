// Counts of a checkpoint's tensors, parameters and bytes by class, from its headers alone.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "common/checkpoint/checkpoint.h"

namespace k3::cli {

enum class TensorClass { kRoutedExperts, kSharedExperts, kAttention, kEmbeddingAndHead, kOther };
inline constexpr std::size_t kTensorClasses = 5;

// "routed_experts"
std::string_view name_of(TensorClass tensor_class);

// The class of a language-model tensor, by its name.
TensorClass class_of(std::string_view tensor);

struct Tally {
  std::uint64_t tensors = 0;
  std::uint64_t parameters = 0;  // two a byte of packed MXFP4; its scales are none
  std::uint64_t bytes = 0;

  Tally& operator+=(const Tally& other);
};

struct Census {
  std::array<Tally, kTensorClasses> classes;  // by TensorClass: tensors in use
  Tally unused;                               // everything else in the shards that were opened

  Tally total() const;  // of the classes
};

Census take_census(const Checkpoint& checkpoint);

}  // namespace k3::cli
