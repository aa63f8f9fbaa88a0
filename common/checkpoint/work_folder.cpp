#include "common/checkpoint/work_folder.h"

namespace k3 {

std::filesystem::path work_folder(const std::optional<std::filesystem::path>& base,
                                  const Checkpoint& checkpoint) {
  const auto folder = std::filesystem::absolute(base.value_or(checkpoint.directory() / ".k3"));
  const int layers = checkpoint.config().layers;
  return layers == checkpoint.model_layers() ? folder : folder / fmt::format("layers-{}", layers);
}

}  // namespace k3
