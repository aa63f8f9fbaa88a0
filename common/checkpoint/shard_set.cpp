#include "common/checkpoint/shard_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "common/base/file.h"
#include "common/base/hash.h"

namespace k3 {
namespace {

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kLoneShard = "model.safetensors";
constexpr std::size_t kMaxIndexBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxThreads = 8;

constexpr std::uint64_t kSamples = 16;
constexpr std::uint64_t kSampleBytes = 4096;

// The index's weight_map. Names are views into the parsed document.
struct WeightMap {
  struct Listing {
    std::string_view tensor;
    std::uint32_t shard;  // in shards
  };
  std::vector<std::string_view> shards;
  std::vector<Listing> listings;
};

Result<simdjson::padded_string> read_padded(const std::filesystem::path& path) {
  K3_ASSIGN(const UniqueFd fd, open_for_reading(path, ErrorCode::kWeights));
  K3_ASSIGN(const std::uint64_t bytes, file_bytes(fd.get(), path));
  if (bytes > kMaxIndexBytes) {
    return fail(ErrorCode::kWeights, "{}: {} bytes, at most {} are accepted", path.string(), bytes,
                kMaxIndexBytes);
  }
  simdjson::padded_string text(bytes);
  K3_TRY(read_exactly(fd.get(), 0, std::as_writable_bytes(std::span(text.data(), bytes)), path));
  return text;
}

Result<WeightMap> read_weight_map(simdjson::dom::parser& parser,
                                  const std::filesystem::path& path) {
  K3_ASSIGN(const simdjson::padded_string text, read_padded(path));
  simdjson::dom::object root;
  simdjson::dom::object object;
  auto error = parser.parse(text).get(root);
  if (error == simdjson::SUCCESS) error = root["weight_map"].get(object);
  if (error != simdjson::SUCCESS) {
    return fail(ErrorCode::kWeights, "{}: expected an object with the object weight_map: {}",
                path.string(), simdjson::error_message(error));
  }
  std::size_t maps = 0;
  for (const auto& [name, value] : root) maps += name == "weight_map" ? 1 : 0;
  if (maps != 1) return fail(ErrorCode::kWeights, "{}: weight_map is there twice", path.string());
  WeightMap map;
  map.listings.reserve(object.size());
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  for (const auto& [tensor, value] : object) {
    std::string_view shard;
    if (value.get(shard) != simdjson::SUCCESS || shard.empty()) {
      return fail(ErrorCode::kWeights, "{}: tensor {}: expected the name of a shard", path.string(),
                  tensor);
    }
    const auto next = static_cast<std::uint32_t>(map.shards.size());
    const auto [number, is_new] = numbers.try_emplace(shard, next);
    if (is_new) map.shards.push_back(shard);
    map.listings.push_back({tensor, number->second});
  }
  return map;
}

// The offsets of the blocks that stand for a shard's data: all of it when it is small.
std::vector<std::uint64_t> sample_offsets(std::uint64_t data_start, std::uint64_t file_bytes) {
  std::vector<std::uint64_t> offsets;
  const std::uint64_t data_bytes = file_bytes - data_start;
  if (data_bytes <= kSamples * kSampleBytes) {
    for (std::uint64_t at = 0; at < data_bytes; at += kSampleBytes) {
      offsets.push_back(data_start + at);
    }
    return offsets;
  }
  const std::uint64_t step = (data_bytes - kSampleBytes) / (kSamples - 1);
  for (std::uint64_t i = 0; i + 1 < kSamples; ++i) offsets.push_back(data_start + i * step);
  offsets.push_back(file_bytes - kSampleBytes);
  return offsets;
}

Result<std::string> shard_digest(const ShardHeader& header) {
  Hasher hasher;
  hasher.add(std::string_view(header.json));
  hasher.add(header.file_bytes);
  K3_ASSIGN(const UniqueFd fd, open_for_reading(header.path, ErrorCode::kWeights));
  const std::vector<std::uint64_t> offsets = sample_offsets(header.data_start, header.file_bytes);
  // A disk serves all blocks at once rather than one by one.
  for (const std::uint64_t offset : offsets) {
    ::posix_fadvise(fd.get(), static_cast<off_t>(offset), kSampleBytes, POSIX_FADV_WILLNEED);
  }
  std::array<std::byte, kSampleBytes> block{};
  for (const std::uint64_t offset : offsets) {
    const std::span<std::byte> sample =
        std::span(block).first(std::min(kSampleBytes, header.file_bytes - offset));
    K3_TRY(read_exactly(fd.get(), offset, sample, header.path));
    hasher.add(std::span<const std::byte>(sample));
  }
  return hasher.hex();
}

struct ReadShard {
  ShardHeader header;
  std::string digest;
};

Result<ReadShard> read_shard(const std::filesystem::path& path) {
  K3_ASSIGN(ShardHeader header, read_shard_header(path));
  K3_ASSIGN(std::string digest, shard_digest(header));
  header.json = {};
  return ReadShard{std::move(header), std::move(digest)};
}

// Hands shards to reading threads and lets them enter their results one at a time, in shard order:
// then at most one shard a thread is held in memory, and errors do not depend on timing.
class ShardQueue {
 public:
  explicit ShardQueue(TensorTable& table) : table_(table), digests_(table.shards().size()) {}

  // Body of each thread.
  void work() {
    std::unique_lock lock(mutex_);
    while (status_ && next_ < digests_.size()) {
      const std::size_t shard = next_++;
      lock.unlock();
      Result<ReadShard> read = read_shard(table_.shards()[shard].path);
      lock.lock();
      turn_changed_.wait(lock, [&] { return turn_ == shard || !status_; });
      if (!status_) return;
      status_ = enter(shard, std::move(read));
      ++turn_;
      turn_changed_.notify_all();
    }
  }

  Result<std::vector<std::string>> finish() {
    if (!status_) return tl::unexpected(std::move(status_.error()));
    return std::move(digests_);
  }

 private:
  Status enter(std::size_t shard, Result<ReadShard> read) {
    if (!read) return tl::unexpected(std::move(read.error()));
    digests_[shard] = std::move(read->digest);
    return table_.merge(static_cast<std::uint32_t>(shard), std::move(read->header));
  }

  std::mutex mutex_;
  std::condition_variable turn_changed_;
  TensorTable& table_;
  std::vector<std::string> digests_;
  std::size_t next_ = 0;  // the shard read next
  std::size_t turn_ = 0;  // the shard entered next
  Status status_;
};

}  // namespace

Status list_shards(const std::filesystem::path& directory, bool used_only, TensorTable& table) {
  const std::filesystem::path index = directory / kIndexFile;
  std::error_code ignored;  // what cannot be examined is reported as absent
  if (!std::filesystem::exists(index, ignored)) {
    if (!std::filesystem::exists(directory / kLoneShard, ignored)) {
      return fail(ErrorCode::kWeights, "{}: neither {} nor {} exists", directory.string(),
                  kIndexFile, kLoneShard);
    }
    table.add_shard(directory / kLoneShard);
    return {};
  }
  simdjson::dom::parser parser;
  K3_ASSIGN(const WeightMap map, read_weight_map(parser, index));

  std::vector<bool> wanted(map.shards.size(), !used_only);
  if (used_only) {
    for (const WeightMap::Listing& listing : map.listings) {
      // A name the model does not have is wanted too: list() refuses it.
      if (table.use_of(listing.tensor) != TensorUse::kUnused) wanted[listing.shard] = true;
    }
  }
  std::map<std::string_view, std::uint32_t> by_name;  // shards are numbered in name order
  for (std::uint32_t shard = 0; shard < map.shards.size(); ++shard) {
    if (wanted[shard]) by_name.emplace(map.shards[shard], shard);
  }
  std::vector<std::uint32_t> numbers(map.shards.size());
  for (const auto& [name, shard] : by_name) numbers[shard] = table.add_shard(directory / name);
  for (const WeightMap::Listing& listing : map.listings) {
    if (wanted[listing.shard]) K3_TRY(table.list(listing.tensor, numbers[listing.shard]));
  }
  return {};
}

Result<std::vector<std::string>> read_shards(TensorTable& table) {
  ShardQueue queue(table);
  const std::size_t threads = std::min<std::size_t>(
      {std::max(1u, std::thread::hardware_concurrency()), kMaxThreads, table.shards().size()});
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < threads; ++i) others.emplace_back([&queue] { queue.work(); });
  queue.work();
  for (std::thread& thread : others) thread.join();
  return queue.finish();
}

}  // namespace k3
