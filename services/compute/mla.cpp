#include "services/compute/mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

namespace k3::compute {

Mla::Mla(const ModelConfig& config, std::size_t max_rows, const kernels::Multiplier& multiplier)
    : config_(config), multiplier_(multiplier) {
  const std::size_t heads = config.mla_heads;
  const std::size_t kv_rank = config.kv_rank;
  q_rank_.resize(max_rows * config.q_rank);
  q_.resize(max_rows * heads * config.q_head_dim());
  latent_.resize(max_rows * latent_width());
  q_norm_.resize(config.q_rank);
  kv_norm_.resize(kv_rank);
  gate_.resize(max_rows * heads * config.v_dim);
  y_.resize(max_rows * heads * config.v_dim);
  query_.resize(max_rows * heads * latent_width());
  context_.resize(max_rows * heads * kv_rank);
  weight_row_.resize(heads * kv_rank);
}

Status Mla::project(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x) {
  const kernels::KernelTable& table = multiplier_.table();
  const std::size_t hidden = config_.hidden;
  const std::size_t q_rank = config_.q_rank;
  K3_TRY(trunk.multiply(layer, TrunkRole::kMlaQa, x, hidden, rows.size(), q_rank_.data(), q_rank));
  K3_TRY(trunk.read(layer, TrunkRole::kMlaQaNorm, q_norm_));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    float* row = q_rank_.data() + r * q_rank;
    table.rms_norm(row, q_norm_.data(), config_.mla_norm_eps, row, q_rank);
  }
  K3_TRY(trunk.multiply(layer, TrunkRole::kMlaQb, q_rank_.data(), q_rank, rows.size(), q_.data(),
                        std::size_t(config_.mla_heads) * config_.q_head_dim()));
  K3_TRY(trunk.multiply(layer, TrunkRole::kMlaKva, x, hidden, rows.size(), latent_.data(),
                        latent_width()));
  return trunk.read(layer, TrunkRole::kMlaKvaNorm, kv_norm_);
}

void Mla::append_latents(int layer, std::span<const Row> rows) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    float* latent = latent_.data() + r * latent_width();
    multiplier_.table().rms_norm(latent, kv_norm_.data(), config_.mla_norm_eps, latent,
                                 config_.kv_rank);
    LatentCache& cache = rows[r].session->latents(layer);
    cache.reserve(rows[r].position + 1);
    std::copy_n(latent, latent_width(), cache.at(rows[r].position));
  }
}

Status Mla::run(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x,
                float* out) {
  const std::size_t value_width = std::size_t(config_.mla_heads) * config_.v_dim;
  K3_TRY(project(trunk, layer, rows, x));
  append_latents(layer, rows);
  const std::size_t head_rows = config_.nope_dim + config_.v_dim;
  const auto use_heads = [&](std::size_t first_row, const kernels::Matrix& kv) {
    for (std::size_t first = 0; first < rows.size();) {
      std::size_t count = 1;
      while (first + count < rows.size() && rows[first + count].session == rows[first].session) {
        ++count;
      }
      run_heads(layer, first_row / head_rows, kv, rows.subspan(first, count), first);
      first += count;
    }
  };
  K3_TRY(trunk.each_block(layer, TrunkRole::kMlaKvb, use_heads));
  K3_TRY(trunk.multiply(layer, TrunkRole::kMlaG, x, config_.hidden, rows.size(), gate_.data(),
                        value_width));
  multiplier_.table().gate_by_sigmoid(gate_.data(), y_.data(), rows.size() * value_width);
  return trunk.multiply(layer, TrunkRole::kMlaO, y_.data(), value_width, rows.size(), out,
                        config_.hidden);
}

void Mla::run_heads(int layer, std::size_t first_head, const kernels::Matrix& kv,
                    std::span<const Row> rows, std::size_t first_row) {
  const kernels::KernelTable& table = multiplier_.table();
  const std::size_t head_rows = config_.nope_dim + config_.v_dim;
  const std::size_t heads = kv.rows / head_rows;
  const std::size_t q_width = config_.mla_heads * config_.q_head_dim();
  const std::size_t y_width = std::size_t(config_.mla_heads) * config_.v_dim;
  multiplier_.for_each(heads, [&](std::size_t i) {
    const std::size_t head = first_head + i;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      absorb(kv, i, q_.data() + (first_row + r) * q_width + head * config_.q_head_dim(),
             weight_row_.data() + head * config_.kv_rank,
             query_.data() + (i * rows.size() + r) * latent_width());
    }
  });
  // Smaller groups when there are few queries: every thread has some.
  const std::size_t queries = heads * rows.size();
  const std::size_t threads = multiplier_.threads();
  const std::size_t group = std::min(kGroupQueries, (queries + threads - 1) / threads);
  LatentCache& cache = rows[0].session->latents(layer);
  multiplier_.for_each((queries + group - 1) / group, [&](std::size_t g) {
    const std::size_t first = g * group;
    attend(cache, rows, first, std::min(group, queries - first));
  });
  const auto product =
      kv.format == kernels::WeightFormat::kBf16 ? table.matmul_bf16 : table.matmul_f32;
  multiplier_.for_each(heads, [&](std::size_t i) {
    product(kv.data + (i * head_rows + config_.nope_dim) * kv.row_bytes(), config_.v_dim,
            config_.kv_rank, context_.data() + i * rows.size() * config_.kv_rank, config_.kv_rank,
            rows.size(), y_.data() + first_row * y_width + (first_head + i) * config_.v_dim,
            y_width);
  });
}

void Mla::absorb(const kernels::Matrix& kv, std::size_t head, const float* q, float* weight_row,
                 float* query) const {
  const kernels::KernelTable& table = multiplier_.table();
  const std::size_t kv_rank = config_.kv_rank;
  const std::size_t nope = config_.nope_dim;
  const std::uint8_t* row = kv.data + head * (nope + config_.v_dim) * kv.row_bytes();
  std::fill_n(query, kv_rank, 0.0f);
  for (std::size_t n = 0; n < nope; ++n, row += kv.row_bytes()) {
    if (kv.format == kernels::WeightFormat::kBf16) {
      table.axpy_bf16(q[n], row, query, kv_rank);
    } else {
      std::memcpy(weight_row, row, kv_rank * sizeof(float));  // rows may lie unaligned
      table.axpy(q[n], weight_row, query, kv_rank);
    }
  }
  std::copy_n(q + nope, config_.rope_dim, query + kv_rank);
}

void Mla::attend(LatentCache& cache, std::span<const Row> rows, std::size_t first,
                 std::size_t count) {
  const kernels::KernelTable& table = multiplier_.table();
  const std::size_t width = latent_width();
  const std::size_t kv_rank = config_.kv_rank;
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.q_head_dim()));
  const float* const query = query_.data() + first * width;
  float* const context = context_.data() + first * kv_rank;
  std::array<float, kGroupQueries * kScorePositions> scores;
  std::array<float, kGroupQueries> sum{};
  std::array<float, kGroupQueries> top;
  top.fill(-std::numeric_limits<float>::infinity());
  std::fill_n(context, count * kv_rank, 0.0f);

  std::size_t positions = 0;  // that any query of the group sees
  const auto seen = [&](std::size_t i) -> std::size_t {
    return rows[(first + i) % rows.size()].position + std::size_t{1};
  };
  for (std::size_t i = 0; i < count; ++i) positions = std::max(positions, seen(i));
  for (std::size_t block = 0; block < positions; block += kScorePositions) {
    const float* const latents = cache.at(block);
    table.matmul_f32(reinterpret_cast<const std::uint8_t*>(latents),
                     std::min(kScorePositions, positions - block), width, query, width, count,
                     scores.data(), kScorePositions);
    for (std::size_t i = 0; i < count; ++i) {
      if (seen(i) <= block) continue;
      const std::size_t n = std::min(kScorePositions, seen(i) - block);
      float* const y = scores.data() + i * kScorePositions;
      table.scale(scale, y, n);
      const float factor = table.softmax_block(y, n, &top[i], &sum[i]);
      table.scale(factor, context + i * kv_rank, kv_rank);
      table.add_weighted_rows(y, latents, width, n, context + i * kv_rank, kv_rank);
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    table.scale(1.0f / sum[i], context + i * kv_rank, kv_rank);
  }
}

std::uint64_t Mla::bytes() const {
  std::uint64_t floats = 0;
  for (const auto* buffer : {&q_rank_, &q_, &latent_, &q_norm_, &kv_norm_, &gate_, &y_, &query_,
                             &context_, &weight_row_}) {
    floats += buffer->size();
  }
  return floats * sizeof(float);
}

}  // namespace k3::compute
