// Choice of experts for one token ("noaux_tc": Kimi and DeepSeek-V3, arXiv 2412.19437,
// section 2.1.2).
#ifndef SHOAL_KERNELS_ROUTER_H_
#define SHOAL_KERNELS_ROUTER_H_

#include <cstdint>
#include <span>

namespace shoal {

struct RouterOptions {
  bool softmax = false;  // scores = softmax(logits) instead of sigmoid(logits)
  bool renormalize = true;
  double routed_scaling_factor = 1.0;
  int64_t num_expert_group = 1;
  int64_t topk_group = 1;
};

// scores = sigmoid or softmax of the logits; selection_scores = scores + bias; with groups, only
// the topk_group groups with the largest sum of their two best selection scores take part (the rest
// count as minus infinity). Chooses expert_ids.size() experts by selection score, best first, the
// lower index on ties; weights are their scores, divided by their sum + 1e-20 where `renormalize`
// and more than one is chosen, times the scaling factor. All in double, weights rounded to float
// once.
//   logits, bias   [num_experts]; `bias` may be empty (zeros)
//   scratch        [2 * num_experts + num_expert_group]
// Returns false where a score or a bias is NaN or infinite: nothing can be chosen. (A logit of
// infinity has the score 0 or 1 under sigmoid, none under softmax where it is the largest.)
bool RouteToken(const RouterOptions& options, std::span<const float> logits,
                std::span<const float> bias, std::span<double> scratch,
                std::span<int32_t> expert_ids, std::span<float> expert_weights);

}  // namespace shoal

#endif  // SHOAL_KERNELS_ROUTER_H_
