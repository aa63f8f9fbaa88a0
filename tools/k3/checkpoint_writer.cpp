// Shard headers, data and index of a made-up checkpoint; see checkpoint_writer.h.
#include "tools/k3/checkpoint_writer.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <system_error>
#include <vector>

#include "common/base/file.h"
#include "tools/k3/random_weights.h"

namespace k3::cli {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
static_assert(kPieceBytes % RandomTensor::kStep == 0);
constexpr std::size_t kHeaderAlignment = 8;

using Tensors = std::span<const PlannedTensor>;

std::uint64_t total_bytes(Tensors tensors) {
  std::uint64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

bool has_values(const CheckpointContent& content, const PlannedTensor& tensor) {
  return !content.sparse || (content.filled_layers > 0 && tensor.layer < content.filled_layers);
}

std::string shard_name(std::uint32_t shard, std::uint32_t shards) {
  return fmt::format("model-{:05}-of-{:06}.safetensors", shard + 1, shards);
}

// Length and JSON, padded with blanks.
std::string header_of(Tensors tensors) {
  std::string json = R"({"__metadata__":{"format":"pt"})";
  std::uint64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    fmt::format_to(std::back_inserter(json),
                   R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", tensor.name,
                   name_of(tensor.dtype), fmt::join(tensor.shape, ","), offset,
                   offset + tensor.bytes);
    offset += tensor.bytes;
  }
  json += '}';
  json.resize((json.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');
  const std::uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json;
}

// The run of `tensors` that begin at `first` and lie in the same shard.
Tensors same_shard(Tensors tensors, std::size_t first) {
  std::size_t end = first;
  while (end < tensors.size() && tensors[end].shard == tensors[first].shard) ++end;
  return tensors.subspan(first, end - first);
}

class Writer {
 public:
  using Progress = std::function<void(std::uint64_t, std::uint64_t)>;

  Writer(const CheckpointContent& content, std::uint64_t total, const Progress& progress)
      : content_(content), total_(total), progress_(progress) {}

  Status write_shard(const std::filesystem::path& path, Tensors tensors) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!fd.valid()) {
      return fail(ErrorCode::kOutput, "{}: cannot be created: {}", path.string(),
                  std::strerror(errno));
    }
    const std::string header = header_of(tensors);
    K3_TRY(write_exactly(fd.get(), 0, std::as_bytes(std::span(header)), path));
    std::uint64_t offset = header.size();
    for (const PlannedTensor& tensor : tensors) {
      if (has_values(content_, tensor)) K3_TRY(write_data(fd.get(), offset, tensor, path));
      offset += tensor.bytes;
      done_ += tensor.bytes;
    }
    if (content_.sparse && ::ftruncate(fd.get(), static_cast<off_t>(offset)) != 0) {
      return fail(ErrorCode::kOutput, "{}: setting the size to {} bytes: {}", path.string(), offset,
                  std::strerror(errno));
    }
    return {};
  }

 private:
  Status write_data(int fd, std::uint64_t offset, const PlannedTensor& tensor,
                    const std::filesystem::path& path) {
    const RandomTensor values(tensor, content_.seed);
    for (std::uint64_t at = 0; at < tensor.bytes; at += kPieceBytes) {
      const std::span<std::byte> piece =
          std::span(buffer_).first(std::min<std::uint64_t>(kPieceBytes, tensor.bytes - at));
      values.fill(at, piece);
      K3_TRY(write_exactly(fd, offset + at, piece, path));
      if (progress_) progress_(done_ + at, total_);
    }
    return {};
  }

  const CheckpointContent& content_;
  std::uint64_t total_;
  const Progress& progress_;
  std::uint64_t done_ = 0;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kPieceBytes);
};

Status make_empty_directory(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  const bool empty = !error && std::filesystem::is_empty(directory, error);
  if (error) {
    return fail(ErrorCode::kOutput, "{} cannot be made: {}", directory.string(), error.message());
  }
  if (!empty) return fail(ErrorCode::kUsage, "{} exists and is not empty", directory.string());
  return {};
}

Status check_free_space(const std::filesystem::path& directory, std::uint64_t bytes) {
  std::error_code unknown;
  const std::uint64_t free_bytes = std::filesystem::space(directory, unknown).available;
  if (unknown || free_bytes >= bytes) return {};
  return fail(ErrorCode::kOutput, "{}: needs {} bytes, the disk has {} free", directory.string(),
              bytes, free_bytes);
}

std::string index_json(const CheckpointPlan& plan) {
  std::string json = fmt::format("{{\n \"metadata\": {{\"total_size\": {}}},\n \"weight_map\": {{",
                                 total_bytes(plan.tensors));
  std::string_view separator = "\n";
  for (const PlannedTensor& tensor : plan.tensors) {
    fmt::format_to(std::back_inserter(json), "{}  \"{}\": \"{}\"", separator, tensor.name,
                   shard_name(tensor.shard, plan.shards));
    separator = ",\n";
  }
  return json + "\n }\n}\n";
}

}  // namespace

Status write_checkpoint(const CheckpointPlan& plan, const std::string& config_json,
                        const CheckpointContent& content, const std::filesystem::path& directory,
                        const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const std::uint64_t total = total_bytes(plan.tensors);
  K3_TRY(make_empty_directory(directory));
  std::uint64_t written = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (has_values(content, tensor)) written += tensor.bytes;
  }
  K3_TRY(check_free_space(directory, written));
  Writer writer(content, total, progress);
  const Tensors all(plan.tensors);
  for (std::size_t first = 0; first < all.size();) {
    const Tensors tensors = same_shard(all, first);
    const std::string name = shard_name(tensors.front().shard, plan.shards);
    K3_TRY(writer.write_shard(directory / name, tensors));
    first += tensors.size();
  }
  K3_TRY(write_file_atomically(directory / "model.safetensors.index.json", index_json(plan)));
  return write_file_atomically(directory / "config.json", config_json);
}

}  // namespace k3::cli
