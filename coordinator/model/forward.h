// The forward pass of the Kimi-Linear architecture over one chunk of tokens (docs/design.md
// restates the formulas and their sources). Blocks are composed by the config of each layer.
#ifndef SHOAL_COORDINATOR_MODEL_FORWARD_H_
#define SHOAL_COORDINATOR_MODEL_FORWARD_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "absl/status/status.h"
#include "common/container/expert_slice.h"
#include "common/model/model_config.h"
#include "coordinator/model/session_state.h"
#include "coordinator/model/trunk_loops.h"
#include "coordinator/model/trunk_weights.h"
#include "coordinator/model/workspace.h"
#include "coordinator/session.h"
#include "expert_node/expert_backend.h"
#include "kernels/expert_arithmetic.h"

namespace shoal {

// What a forward pass works with; all owned by others and alive during the call.
struct ForwardContext {
  const ModelConfig& config;
  const TrunkWeights& weights;
  ExpertBackend* experts = nullptr;  // null for a model without MoE layers
  ExpertSlice whole;                 // all units of all experts
  const TrunkLoops& loops;
  SessionState& state;
  Workspace& workspace;
  ForwardObserver* observer = nullptr;
  std::stop_token stop;
  uint64_t call = 0;  // ExpertBackend::Batch's
  ExpertArithmetic arithmetic = ExpertArithmetic::kExact;
};

// Runs `ids` (at most workspace.max_rows, all inside the vocabulary) at positions first_position...
// The new delta-attention state is left in state.next(): the caller commits. Afterwards
// workspace.normed holds the final norm's output [ids.size(), hidden_size]. CANCELLED between
// layers where `stop` was requested; INTERNAL where a value stopped being finite; and
// ExpertBackend::Execute's errors.
absl::Status RunLayers(ForwardContext& context, std::span<const int32_t> ids,
                       int64_t first_position);

// Logits of one row of workspace.normed, into workspace.logits.
void ComputeLogits(ForwardContext& context, int64_t row);

// The blocks: each reads workspace.normed (first num_rows rows) and writes workspace.block_out.
void DeltaAttentionBlock(ForwardContext& context, int64_t layer, int64_t num_rows);
void MlaBlock(ForwardContext& context, int64_t layer, int64_t first_position, int64_t num_rows);
void MlpBlock(ForwardContext& context, const MlpWeights& weights, int64_t num_rows);
absl::Status MoeBlock(ForwardContext& context, int64_t layer, int64_t first_position,
                      int64_t num_rows);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_FORWARD_H_
