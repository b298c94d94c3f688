#include "coordinator/model/workspace.h"

#include <algorithm>

#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr uint64_t kArrayAlignment = 64;

// Hands out aligned arrays from a buffer, or, without one, only counts: so that Bytes and Allocate
// cannot disagree.
class Carver {
 public:
  explicit Carver(std::span<std::byte> buffer) : buffer_(buffer) {}

  template <typename T>
  void operator()(std::span<T>& array, int64_t size) {
    const uint64_t bytes = static_cast<uint64_t>(size) * sizeof(T);
    if (!buffer_.empty()) {
      array = {reinterpret_cast<T*>(buffer_.data() + used_), static_cast<size_t>(size)};
    }
    used_ += (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment;
  }

  uint64_t used() const { return used_; }

 private:
  std::span<std::byte> buffer_;
  uint64_t used_ = 0;
};

int64_t WidestMlp(const ModelConfig& config) {
  return std::max(config.intermediate_size,
                  config.moe.num_shared_experts * config.moe.moe_intermediate_size);
}

// Input width of the widest trunk matrix.
int64_t WidestInput(const ModelConfig& config) {
  return std::max({config.hidden_size, WidestMlp(config),
                   config.delta.num_heads * config.delta.head_dim, config.delta.head_dim,
                   config.mla.num_heads * config.mla.v_head_dim,
                   config.mla.num_heads * config.mla.qk_nope_head_dim, config.mla.kv_lora_rank,
                   config.mla.q_lora_rank});
}

void CarveDelta(Workspace& w, const DeltaConfig& delta, int64_t rows, Carver& carve) {
  const int64_t width = delta.num_heads * delta.head_dim;
  for (auto* array : {&w.delta_raw, &w.delta_q, &w.delta_k, &w.delta_v, &w.delta_decay,
                      &w.delta_gate, &w.delta_out}) {
    carve(*array, rows * width);
  }
  carve(w.delta_low, rows * delta.head_dim);
  carve(w.delta_beta, rows * delta.num_heads);
}

void CarveMla(Workspace& w, const MlaConfig& mla, int64_t rows, Carver& carve) {
  carve(w.mla_q_low, rows * mla.q_lora_rank);
  carve(w.mla_q, rows * mla.num_heads * (mla.qk_nope_head_dim + mla.qk_rope_head_dim));
  carve(w.mla_q_head, rows * mla.qk_nope_head_dim);
  carve(w.mla_query, rows * mla.num_heads * (mla.kv_lora_rank + mla.qk_rope_head_dim));
  carve(w.mla_kv, rows * (mla.kv_lora_rank + mla.qk_rope_head_dim));
  carve(w.mla_context, rows * mla.num_heads * mla.kv_lora_rank);
  carve(w.mla_out, rows * mla.num_heads * mla.v_head_dim);
}

void CarveAll(Workspace& w, const ModelConfig& config, int64_t rows, Carver& carve) {
  for (auto* array : {&w.hidden, &w.normed, &w.block_out}) {
    carve(*array, rows * config.hidden_size);
  }
  CarveDelta(w, config.delta, rows, carve);
  CarveMla(w, config.mla, rows, carve);
  carve(w.ffn_gate, rows * WidestMlp(config));
  carve(w.ffn_up, rows * WidestMlp(config));
  carve(w.router_logits, rows * config.moe.num_experts);
  carve(w.expert_weights, rows * config.moe.num_experts_per_token);
  carve(w.expert_ids, rows * config.moe.num_experts_per_token);
  carve(w.expert_sums, rows * config.hidden_size);
  carve(w.router_scratch, 2 * config.moe.num_experts + config.moe.num_expert_group);
  carve(w.quantized, rows * TrunkRowBytes(WidestInput(config)));
  carve(w.logits, config.vocab_size);
}

}  // namespace

uint64_t Workspace::Bytes(const ModelConfig& config, int64_t max_rows) {
  Workspace none;
  Carver count({});
  CarveAll(none, config, max_rows, count);
  return count.used();
}

absl::StatusOr<Workspace> Workspace::Allocate(const ModelConfig& config, int64_t max_rows) {
  Workspace workspace;
  workspace.max_rows = max_rows;
  SHOAL_ASSIGN_OR_RETURN(workspace.buffer_, AlignedBuffer::Allocate(Bytes(config, max_rows)));
  Carver carve(workspace.buffer_.bytes());
  CarveAll(workspace, config, max_rows, carve);
  workspace.quantized_rows.resize(static_cast<size_t>(max_rows));
  return workspace;
}

}  // namespace shoal
