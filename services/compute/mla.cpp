#include "services/compute/mla.h"

#include <algorithm>
#include <cmath>
#include <cstring>

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
  query_.resize(heads * latent_width());
  context_.resize(heads * max_rows * kv_rank);
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

void Mla::make_room_for_scores(std::span<const Row> rows) {
  std::size_t positions = 0;
  for (const Row& row : rows) positions = std::max<std::size_t>(positions, row.position + 1);
  if (positions <= score_positions_) return;
  score_positions_ = whole_blocks(positions);
  scores_ = {};  // freed first: the plan has room for one
  scores_ = std::vector<float>(config_.mla_heads * score_positions_);
}

Status Mla::run(TrunkCursor& trunk, int layer, std::span<const Row> rows, const float* x,
                float* out) {
  const std::size_t value_width = std::size_t(config_.mla_heads) * config_.v_dim;
  K3_TRY(project(trunk, layer, rows, x));
  append_latents(layer, rows);
  make_room_for_scores(rows);
  const std::size_t head_rows = config_.nope_dim + config_.v_dim;
  const auto use_heads = [&](std::size_t first_row, const kernels::Matrix& kv) {
    multiplier_.for_each(kv.rows / head_rows, [&](std::size_t i) {
      kernels::Matrix head = kv;
      head.data += i * head_rows * kv.row_bytes();
      head.rows = head_rows;
      run_head(layer, first_row / head_rows + i, head, rows);
    });
  };
  K3_TRY(trunk.each_block(layer, TrunkRole::kMlaKvb, use_heads));
  K3_TRY(trunk.multiply(layer, TrunkRole::kMlaG, x, config_.hidden, rows.size(), gate_.data(),
                        value_width));
  multiplier_.table().gate_by_sigmoid(gate_.data(), y_.data(), rows.size() * value_width);
  return trunk.multiply(layer, TrunkRole::kMlaO, y_.data(), value_width, rows.size(), out,
                        config_.hidden);
}

void Mla::run_head(int layer, std::size_t head, const kernels::Matrix& kv,
                   std::span<const Row> rows) {
  const kernels::KernelTable& table = multiplier_.table();
  const std::size_t kv_rank = config_.kv_rank;
  const std::size_t nope = config_.nope_dim;
  const std::size_t heads = config_.mla_heads;
  float* query = query_.data() + head * latent_width();
  float* weight_row = weight_row_.data() + head * kv_rank;
  float* scores = scores_.data() + head * score_positions_;
  float* context = context_.data() + head * (context_.size() / heads);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    // The absorbed query: Wk^T q_nope, then q_rope, to be met by a position's latent and r.
    const float* q = q_.data() + (r * heads + head) * config_.q_head_dim();
    std::fill_n(query, kv_rank, 0.0f);
    for (std::size_t n = 0; n < nope; ++n) {
      const std::uint8_t* row = kv.data + n * kv.row_bytes();
      if (kv.format == kernels::WeightFormat::kBf16) {
        table.axpy_bf16(q[n], row, query, kv_rank);
      } else {
        std::memcpy(weight_row, row, kv_rank * sizeof(float));  // rows may lie unaligned
        table.axpy(q[n], weight_row, query, kv_rank);
      }
    }
    std::copy_n(q + nope, config_.rope_dim, query + kv_rank);
    attend(rows[r].session->latents(layer), rows[r].position + 1, query, scores,
           context + r * kv_rank);
  }
  const auto product =
      kv.format == kernels::WeightFormat::kBf16 ? table.matmul_bf16 : table.matmul_f32;
  product(kv.data + nope * kv.row_bytes(), config_.v_dim, kv_rank, context, kv_rank, rows.size(),
          y_.data() + head * config_.v_dim, heads * config_.v_dim);
}

void Mla::attend(LatentCache& cache, std::size_t positions, const float* query, float* scores,
                 float* context) const {
  const kernels::KernelTable& table = multiplier_.table();
  const float scale = 1.0f / std::sqrt(static_cast<float>(config_.q_head_dim()));
  for (std::size_t t = 0; t < positions; ++t) {
    scores[t] = scale * table.dot(query, cache.at(t), latent_width());
  }
  table.softmax(scores, positions);
  std::fill_n(context, config_.kv_rank, 0.0f);
  for (std::size_t t = 0; t < positions; ++t) {
    table.axpy(scores[t], cache.at(t), context, config_.kv_rank);
  }
}

std::uint64_t Mla::bytes() const {
  std::uint64_t floats = 0;
  for (const auto* buffer : {&q_rank_, &q_, &latent_, &q_norm_, &kv_norm_, &gate_, &y_, &query_,
                             &context_, &weight_row_, &scores_}) {
    floats += buffer->size();
  }
  return floats * sizeof(float);
}

}  // namespace k3::compute
