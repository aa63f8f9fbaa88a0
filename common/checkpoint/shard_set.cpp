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

// One line of the index's weight_map; views into the parsed document.
struct Listing {
  std::string_view tensor;
  std::string_view shard;
};

Result<std::vector<Listing>> read_weight_map(simdjson::dom::parser& parser,
                                             const std::filesystem::path& path) {
  Result<std::string> text = read_text_file(path, kMaxIndexBytes);
  if (!text) return fail(ErrorCode::kWeights, "{}", text.error().message);
  simdjson::dom::object map;
  if (const auto error = parser.parse(*text)["weight_map"].get(map); error != simdjson::SUCCESS) {
    return fail(ErrorCode::kWeights, "{}: expected an object with the object weight_map: {}",
                path.string(), simdjson::error_message(error));
  }
  std::vector<Listing> listings;
  for (const auto& [tensor, value] : map) {
    std::string_view shard;
    if (value.get(shard) != simdjson::SUCCESS || shard.empty()) {
      return fail(ErrorCode::kWeights, "{}: tensor {}: expected the name of a shard", path.string(),
                  tensor);
    }
    listings.push_back({tensor, shard});
  }
  return listings;
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
  K3_ASSIGN(const UniqueFd fd, open_for_reading(header.path));
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
  K3_ASSIGN(const std::vector<Listing> listings, read_weight_map(parser, index));

  std::map<std::string_view, std::uint32_t> shards;
  for (const Listing& listing : listings) {
    const TensorUse use = table.use_of(listing.tensor);
    if (use == TensorUse::kUnknown) {
      return fail(ErrorCode::kWeights, "{}: tensor {}: the model has no such tensor",
                  index.string(), listing.tensor);
    }
    if (!used_only || use == TensorUse::kUsed) shards.emplace(listing.shard, 0);
  }
  for (auto& [name, number] : shards) number = table.add_shard(directory / name);
  for (const Listing& listing : listings) {
    const auto shard = shards.find(listing.shard);
    if (shard != shards.end()) K3_TRY(table.list(listing.tensor, shard->second));
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
