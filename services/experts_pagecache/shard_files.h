// The shards that hold routed experts, mapped, and where in them each expert lies.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/arena/arena.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/checkpoint/checkpoint.h"
#include "common/ipc/messages.h"
#include "common/ipc/server.h"

namespace k3::pagecache {

// An expert as a number: (layer - dense layers) * experts per layer + expert.
using ExpertId = std::uint32_t;

struct Shape {
  std::uint32_t layers = 0;  // in use, dense ones included
  std::uint32_t dense_layers = 0;
  std::uint32_t experts = 0;  // per layer with routed experts

  std::uint32_t total() const { return (layers - dense_layers) * experts; }
  std::uint32_t layer_of(ExpertId id) const { return dense_layers + id / experts; }
  std::uint32_t expert_of(ExpertId id) const { return id % experts; }
};

// Bytes of one shard that lie in a row.
struct FileRun {
  std::uint32_t file = 0;  // region number
  std::span<const std::byte> bytes;
};

// Immutable once open; any thread may read. Region i is the i-th file.
class ShardFiles {
 public:
  // kUsage when more shards hold experts than there may be regions; otherwise errors name the file.
  static Result<ShardFiles> open(const Checkpoint& checkpoint);

  const Shape& shape() const { return shape_; }
  std::uint64_t expert_bytes() const;
  // What clients map; the descriptors live as long as this.
  std::vector<ipc::SharedRegion> regions() const;
  // The six parts of an expert as references.
  std::vector<ipc::Ref> parts(ExpertId id) const;
  // The same bytes in as few runs as possible.
  std::vector<FileRun> runs(ExpertId id) const;
  // "PATH: 4096 bytes at 8192"
  std::string describe(const FileRun& run) const;

 private:
  struct File {
    std::filesystem::path path;
    UniqueFd fd;
    MappedRegion mapping;
  };
  struct PartPlace {
    std::uint32_t file = 0;
    std::uint64_t offset = 0;
  };
  ShardFiles() = default;
  Status add_files(const Checkpoint& checkpoint);
  Status add_file(const Shard& shard);

  Shape shape_;
  std::uint64_t generation_ = 0;
  std::array<std::uint64_t, kExpertParts> part_bytes_{};
  std::vector<File> files_;
  std::vector<std::array<PartPlace, kExpertParts>> places_;  // by ExpertId
};

}  // namespace k3::pagecache
