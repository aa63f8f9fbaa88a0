#include "services/experts_pagecache/shard_files.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "common/base/file.h"
#include "common/ipc/identity.h"
#include "common/ipc/lifeline.h"

namespace k3::pagecache {

Result<ShardFiles> ShardFiles::open(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  ShardFiles files;
  files.shape_.dense_layers = static_cast<std::uint32_t>(config.dense_layers);
  // With dense layers alone there is nothing to fetch, but still a service to talk to.
  files.shape_.layers =
      std::max(static_cast<std::uint32_t>(config.layers), files.shape_.dense_layers);
  files.shape_.experts = static_cast<std::uint32_t>(config.experts);
  // New for every life of the service, as the contract wants it: the files are the same, it is not.
  const ipc::ConnectionId random = ipc::new_connection_id();
  std::memcpy(&files.generation_, random.data(), sizeof(files.generation_));
  for (int part = 0; part < kExpertParts; ++part) {
    files.part_bytes_[part] = expert_part_bytes(config, static_cast<ExpertPart>(part));
  }
  K3_TRY(files.add_files(checkpoint));
  return files;
}

Status ShardFiles::add_files(const Checkpoint& checkpoint) {
  std::map<std::uint32_t, std::uint32_t> file_of;  // by the checkpoint's number of the shard
  for (ExpertId id = 0; id < shape_.total(); ++id) {
    const std::vector<TensorPlace> parts = checkpoint.expert(
        static_cast<int>(shape_.layer_of(id)), static_cast<int>(shape_.expert_of(id)));
    auto& places = places_.emplace_back();
    for (int part = 0; part < kExpertParts; ++part) {
      const auto next = static_cast<std::uint32_t>(file_of.size());
      const auto [found, is_new] = file_of.emplace(parts[part].shard, next);
      if (is_new) K3_TRY(add_file(checkpoint.shards()[parts[part].shard]));
      places[part] = {found->second, parts[part].offset};
    }
  }
  return {};
}

Status ShardFiles::add_file(const Shard& shard) {
  if (files_.size() >= ipc::kMaxRegions) {
    return fail(ErrorCode::kUsage,
                "{}: more than {} shards hold experts, the most that can be "
                "handed over; use k3-experts",
                shard.path.string(), ipc::kMaxRegions);
  }
  K3_ASSIGN(UniqueFd fd, open_for_reading(shard.path, ErrorCode::kWeights));
  UniqueFd to_map(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!to_map.valid()) {
    return fail(ErrorCode::kFailed, "{}: {}", shard.path.string(), std::strerror(errno));
  }
  auto mapping = MappedRegion::map(std::move(to_map), shard.file_bytes, RegionKind::kFile);
  if (!mapping) {
    return fail(ErrorCode::kWeights, "{}: {}", shard.path.string(), mapping.error().message);
  }
  files_.push_back({shard.path, std::move(fd), std::move(*mapping)});
  return {};
}

std::uint64_t ShardFiles::expert_bytes() const {
  return std::accumulate(part_bytes_.begin(), part_bytes_.end(), std::uint64_t{0});
}

std::vector<ipc::SharedRegion> ShardFiles::regions() const {
  std::vector<ipc::SharedRegion> regions;
  for (const File& file : files_) {
    regions.push_back({static_cast<std::uint32_t>(regions.size()), generation_,
                       file.mapping.data().size(), file.fd.get(), RegionKind::kFile});
  }
  return regions;
}

std::vector<ipc::Ref> ShardFiles::parts(ExpertId id) const {
  std::vector<ipc::Ref> parts;
  for (int part = 0; part < kExpertParts; ++part) {
    const PartPlace& place = places_[id][part];
    parts.push_back({place.file, generation_, place.offset, part_bytes_[part]});
  }
  return parts;
}

std::vector<FileRun> ShardFiles::runs(ExpertId id) const {
  std::vector<std::pair<PartPlace, std::uint64_t>> parts;
  parts.reserve(kExpertParts);
  for (int part = 0; part < kExpertParts; ++part) {
    parts.emplace_back(places_[id][part], part_bytes_[part]);
  }
  std::ranges::sort(parts, {},
                    [](const auto& part) { return std::pair(part.first.file, part.first.offset); });
  std::vector<FileRun> runs;
  for (const auto& [place, bytes] : parts) {
    const std::span<const std::byte> all = files_[place.file].mapping.data();
    const std::span<const std::byte> part = all.subspan(place.offset, bytes);
    if (!runs.empty() && runs.back().bytes.data() + runs.back().bytes.size() == part.data()) {
      runs.back().bytes = {runs.back().bytes.data(), runs.back().bytes.size() + bytes};
    } else {
      runs.push_back({place.file, part});
    }
  }
  return runs;
}

std::string ShardFiles::describe(const FileRun& run) const {
  const File& file = files_[run.file];
  return fmt::format("{}: {} bytes at {}", file.path.string(), run.bytes.size(),
                     run.bytes.data() - file.mapping.data().data());
}

}  // namespace k3::pagecache
