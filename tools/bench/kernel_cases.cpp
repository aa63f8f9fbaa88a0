#include "tools/bench/kernel_cases.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <span>

#include "common/base/aligned.h"
#include "common/base/check.h"
#include "common/codec/coded_bf16.h"
#include "common/kernels/select.h"
#include "tools/bench/huge_memory.h"
#include "tools/bench/machine_limits.h"

namespace k3::bench {
namespace {

using kernels::Matrix;
using kernels::Multiplier;
using kernels::WeightFormat;

// The released shape.
constexpr std::size_t kHidden = 7168;
constexpr std::size_t kKdaHeads = 96;
constexpr std::size_t kKdaDim = 128;
constexpr std::size_t kKdaWidth = kKdaHeads * kKdaDim;
constexpr std::size_t kExperts = 896;
constexpr std::size_t kExpertWidth = 3072;
constexpr std::size_t kLatent = 3584;

constexpr std::size_t kBatch = 32;
constexpr std::size_t kReadBlock = 256 * 1024;
constexpr std::uint64_t kPeakRounds = 1'000'000;
constexpr float kWeightSpread = 0.02F;

Floats normal_floats(std::size_t count, float spread) {
  std::mt19937_64 generator(1);
  std::normal_distribution<float> normal(0.0F, spread);
  Floats values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<std::byte> normal_bf16(std::size_t count) {
  const Floats values = normal_floats(count, kWeightSpread);
  std::vector<std::byte> bytes(2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(bytes.data() + 2 * i, reinterpret_cast<const std::byte*>(&values[i]) + 2, 2);
  }
  return bytes;
}

// Nibbles at random, scales between 1/16 and 1.
std::vector<std::byte> random_mxfp4(std::size_t rows, std::size_t cols) {
  std::mt19937_64 generator(1);
  std::vector<std::byte> bytes(rows * cols / 2 + rows * cols / 32);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = std::byte(i < rows * cols / 2 ? generator() : 123 + generator() % 5);
  }
  return bytes;
}

// Copies of one weight block, one after another, as many as fill the pool.
class Pool {
 public:
  Pool(std::span<const std::byte> block, std::size_t pool_bytes)
      : block_bytes_((block.size() + 63) / 64 * 64),
        copies_(std::max<std::size_t>(pool_bytes / block_bytes_, 1)),
        memory_(copies_ * block_bytes_) {
    for (std::size_t i = 0; i < copies_; ++i) {
      std::memcpy(memory_.data() + i * block_bytes_, block.data(), block.size());
    }
  }

  const HugeMemory& memory() const { return memory_; }

  // The copies in turn.
  const std::byte* next() { return memory_.data() + next_++ % copies_ * block_bytes_; }

 private:
  std::size_t block_bytes_;
  std::size_t copies_;
  HugeMemory memory_;
  std::size_t next_ = 0;
};

// Weights of one shape and format: how to see a matrix in a copy.
struct Weights {
  std::string name;
  std::shared_ptr<Pool> pool;
  std::size_t block_bytes = 0;
  std::size_t rows = 0, cols = 0;
  std::function<Matrix(const std::byte*)> matrix;
};

const std::uint8_t* octets(const std::byte* bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}

Weights bf16_weights(std::size_t rows, std::size_t cols, std::span<const std::byte> raw,
                     std::size_t pool_bytes) {
  const auto matrix = [rows, cols](const std::byte* bytes) {
    return Matrix{.format = WeightFormat::kBf16, .data = octets(bytes), .rows = rows, .cols = cols};
  };
  return {"bf16", std::make_shared<Pool>(raw, pool_bytes), raw.size(), rows, cols, matrix};
}

Weights coded_weights(std::size_t rows, std::size_t cols, std::span<const std::byte> raw,
                      std::size_t pool_bytes) {
  const auto block = encode_bf16(raw, rows, cols);
  K3_CHECK(block.has_value(), "normal weights do not shrink");
  const auto matrix = [rows, cols, size = block->size()](const std::byte* bytes) {
    const auto coded = open_coded_bf16({bytes, size}, rows, cols);
    K3_CHECK(coded.has_value(), "a block that does not open");
    return Matrix{.format = WeightFormat::kCodedBf16, .rows = rows, .cols = cols, .coded = *coded};
  };
  return {"coded", std::make_shared<Pool>(*block, pool_bytes), block->size(), rows, cols, matrix};
}

Weights mxfp4_weights(std::size_t rows, std::size_t cols, std::size_t pool_bytes) {
  const std::vector<std::byte> block = random_mxfp4(rows, cols);
  const auto matrix = [rows, cols](const std::byte* bytes) {
    return Matrix{.format = WeightFormat::kMxfp4,
                  .data = octets(bytes),
                  .scales = octets(bytes) + rows * cols / 2,
                  .rows = rows,
                  .cols = cols};
  };
  return {"mxfp4", std::make_shared<Pool>(block, pool_bytes), block.size(), rows, cols, matrix};
}

KernelCase product_case(const std::shared_ptr<const Multiplier>& multiplier, const Weights& w,
                        std::size_t batch) {
  const auto x = std::make_shared<Floats>(normal_floats(batch * w.cols, 1.0F));
  const auto y = std::make_shared<Floats>(batch * w.rows);
  return {.table = multiplier->table().name,
          .name = w.name + " " + std::to_string(w.rows) + "x" + std::to_string(w.cols) + " x " +
                  std::to_string(batch),
          .bytes = double(w.block_bytes),
          .multiply_adds = double(w.rows) * double(w.cols) * double(batch),
          .run = [multiplier, w, x, y, batch] {
            const Matrix matrix = w.matrix(w.pool->next());
            multiplier->multiply(matrix, x->data(), w.cols, batch, y->data(), w.rows);
          }};
}

// The recurrence of one layer over `rows` positions, head by head.
KernelCase kda_case(const std::shared_ptr<const Multiplier>& multiplier, std::size_t rows,
                    std::size_t pool_bytes) {
  const std::size_t head_state = kKdaDim * kKdaDim;
  const Floats state = normal_floats(kKdaHeads * head_state, 1.0F);
  const auto pool = std::make_shared<Pool>(std::as_bytes(std::span(state)), pool_bytes);
  // Per head and row: q, k, v, alpha, out.
  const auto vectors =
      std::make_shared<Floats>(normal_floats(kKdaHeads * rows * 5 * kKdaDim, 0.1F));
  for (std::size_t i = 0; i < kKdaHeads * rows; ++i) {
    std::fill_n(vectors->begin() + static_cast<std::ptrdiff_t>((5 * i + 3) * kKdaDim), kKdaDim,
                0.9F);
  }
  const auto run = [multiplier, pool, vectors, rows, head_state] {
    auto* const states = reinterpret_cast<float*>(const_cast<std::byte*>(pool->next()));
    multiplier->for_each(kKdaHeads, [&](std::size_t head) {
      for (std::size_t r = 0; r < rows; ++r) {
        float* const q = vectors->data() + (head * rows + r) * 5 * kKdaDim;
        multiplier->table().kda_step(states + head * head_state, q, q + kKdaDim, q + 2 * kKdaDim,
                                     q + 3 * kKdaDim, 0.5F, q + 4 * kKdaDim, kKdaDim, kKdaDim);
      }
    });
  };
  // Per element of the state: decay, two sums and one correction.
  const double elements = double(kKdaHeads) * double(head_state);
  return {.table = multiplier->table().name,
          .name = "kda 96 heads x " + std::to_string(rows),
          .bytes = elements * sizeof(float),
          .multiply_adds = 4 * elements * double(rows),
          .run = run};
}

KernelCase read_case(const std::shared_ptr<Pool>& pool, int threads) {
  const Multiplier team(*kernels::supported_tables().front(), threads);
  const std::size_t blocks = pool->memory().size() / kReadBlock;
  return {.table = {},
          .name = kReadCase,
          .bytes = double(blocks) * kReadBlock,
          .run = [pool, team, blocks] {
            team.for_each(blocks, [&](std::size_t i) {
              const auto sum = read_memory(pool->memory().data() + i * kReadBlock, kReadBlock);
              asm volatile("" ::"r"(sum));
            });
          }};
}

KernelCase peak_case(int threads) {
  const Multiplier team(*kernels::supported_tables().front(), threads);
  const auto each = static_cast<std::size_t>(threads);
  return {.table = {},
          .name = kPeakCase,
          .multiply_adds = double(multiply_add_in_registers(kPeakRounds)) * threads,
          .run = [team, each] {
            team.for_each(each, [](std::size_t) { multiply_add_in_registers(kPeakRounds); });
          }};
}

}  // namespace

std::vector<KernelCase> kernel_cases(const std::vector<const kernels::KernelTable*>& tables,
                                     int threads, std::size_t pool_bytes) {
  const std::vector<std::byte> raw = normal_bf16(kKdaWidth * kHidden);
  const Weights projection = bf16_weights(kKdaWidth, kHidden, raw, pool_bytes);
  const Weights router =
      bf16_weights(kExperts, kHidden, std::span(raw).first(kExperts * kHidden * 2), pool_bytes);
  const Weights coded = coded_weights(kKdaWidth, kHidden, raw, pool_bytes);
  const Weights expert = mxfp4_weights(kExpertWidth, kLatent, pool_bytes);

  std::vector<KernelCase> cases = {read_case(projection.pool, threads), peak_case(threads)};
  for (const kernels::KernelTable* table : tables) {
    const auto multiplier = std::make_shared<const Multiplier>(*table, threads);
    for (const std::size_t batch : {std::size_t{1}, kBatch}) {
      for (const Weights* weights : {&projection, &coded, &expert}) {
        cases.push_back(product_case(multiplier, *weights, batch));
      }
    }
    cases.push_back(product_case(multiplier, router, 1));
    cases.push_back(kda_case(multiplier, 1, pool_bytes));
    cases.push_back(kda_case(multiplier, kBatch, pool_bytes));
  }
  return cases;
}

}  // namespace k3::bench
