// Scratch of one forward pass, sized once for a number of rows and reused for every chunk.
#ifndef SHOAL_COORDINATOR_MODEL_WORKSPACE_H_
#define SHOAL_COORDINATOR_MODEL_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "common/io/aligned_buffer.h"
#include "common/model/model_config.h"
#include "kernels/matvec.h"

namespace shoal {

// All arrays are [rows, width], row-major; the width is what the comment says.
struct Workspace {
  int64_t max_rows = 0;
  std::span<float> hidden;  // residual stream, hidden_size
  std::span<float> normed;  // hidden_size
  std::span<float>
      block_out;  // output of attention or feed-forward before the residual add, hidden_size

  std::span<float> delta_raw;  // projection before the convolution, num_heads * head_dim
  std::span<float> delta_q;    // num_heads * head_dim, likewise below
  std::span<float> delta_k;
  std::span<float> delta_v;
  std::span<float> delta_decay;
  std::span<float> delta_gate;
  std::span<float> delta_low;   // head_dim
  std::span<float> delta_beta;  // num_heads
  std::span<float> delta_out;   // num_heads * head_dim

  std::span<float> mla_q_low;   // q_lora_rank
  std::span<float> mla_q;       // num_heads * (nope + rope)
  std::span<float> mla_q_head;  // nope of one head, gathered
  std::span<float> mla_query;   // num_heads * (kv_lora_rank + rope): folded query, then shared part
  std::span<float> mla_kv;      // kv_lora_rank + rope
  std::span<float> mla_context;  // num_heads * kv_lora_rank
  std::span<float> mla_out;      // num_heads * v_head_dim

  std::span<float> ffn_gate;  // widest of the dense and shared MLPs
  std::span<float> ffn_up;
  std::span<float> router_logits;    // num_experts
  std::span<float> expert_weights;   // num_experts_per_token
  std::span<int32_t> expert_ids;     // num_experts_per_token
  std::span<int64_t> expert_sums;    // hidden_size
  std::span<double> router_scratch;  // one row: 2 * num_experts + num_expert_group

  std::span<std::byte> quantized;  // TrunkRowBytes of the widest input
  std::vector<TrunkRow> quantized_rows;
  std::span<float> logits;  // one row, vocab_size

  // RESOURCE_EXHAUSTED where the system refuses memory.
  static absl::StatusOr<Workspace> Allocate(const ModelConfig& config, int64_t max_rows);
  // Bytes Allocate takes.
  static uint64_t Bytes(const ModelConfig& config, int64_t max_rows);

 private:
  AlignedBuffer buffer_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_WORKSPACE_H_
