#include "services/tokenizer/character_classes.h"

#include <cstddef>

namespace k3::tokenizer {

CharacterClasses::CharacterClasses() {
  constexpr std::size_t kCodePoints = 0x110000;
  classes_.reserve(kCodePoints);
  CharacterClass current = 0;
  for (const ClassRun& run : class_runs()) {
    classes_.resize(run.first, current);
    current = run.classes;
  }
  classes_.resize(kCodePoints, current);
}

}  // namespace k3::tokenizer
