// Which shard files make up a checkpoint, and their headers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/checkpoint/tensor_table.h"

namespace k3 {

// Enters the shards of `directory` into `table`: those model.safetensors.index.json names, with the
// tensors it lists, or model.safetensors alone where there is no index. With `used_only`, shards
// that hold no tensor in use are left out (they may be absent or incomplete). Errors: kWeights
// naming the file.
Status list_shards(const std::filesystem::path& directory, bool used_only, TensorTable& table);

// Reads every shard's header and enters its tensors into `table`. Returns a digest per shard, of
// its header, its size and 16 blocks of 4 KiB spread evenly over its data. Works on several
// threads; the first shard with an error decides the error. Errors: kWeights.
Result<std::vector<std::string>> read_shards(TensorTable& table);

}  // namespace k3
