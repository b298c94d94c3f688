// The rules that messages of an Execute stream must keep, from the node's own sizes.
#ifndef SHOAL_EXPERT_NODE_SERVICE_REQUEST_RULES_H_
#define SHOAL_EXPERT_NODE_SERVICE_REQUEST_RULES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/expert_slice.h"
#include "expert_node/expert_model.h"
#include "kernels/expert_arithmetic.h"

namespace shoal {

namespace v1 {
class Hello;
class LayerRequest;
class PrefetchHint;
class Terms;
}  // namespace v1

// Thread-safe. INVALID_ARGUMENT names the field, what it holds and what is accepted.
class RequestRules {
 public:
  static constexpr int64_t kMaxSlices = 1024;

  // `model` outlives the rules.
  RequestRules(const ExpertSizes& model, int64_t max_rows) : model_(model), max_rows_(max_rows) {}

  // The arithmetic that the stream asks for. FAILED_PRECONDITION where other terms differ, or this build has no such
  // arithmetic.
  absl::StatusOr<ExpertArithmetic> CheckHello(const v1::Hello& hello, const v1::Terms& ours) const;
  // The slices of the request, inside the model and disjoint; whether they are held is not looked
  // at.
  absl::StatusOr<std::vector<ExpertSlice>> CheckLayer(const v1::LayerRequest& request) const;
  absl::Status CheckPrefetch(const v1::PrefetchHint& hint) const;
  // An MoE layer of the model. `field` begins the error.
  absl::Status CheckLayerIndex(int64_t layer, absl::string_view field) const;

  int64_t experts_per_row() const { return model_.num_experts_per_token; }
  // No message of a stream that keeps the rules is larger: the limit of what is received.
  int64_t MaxRequestBytes() const;
  // The largest reply to a layer.
  int64_t MaxReplyBytes() const;

 private:
  absl::Status CheckShapes(const v1::LayerRequest& request) const;
  absl::Status CheckValues(const v1::LayerRequest& request) const;

  const ExpertSizes& model_;
  const int64_t max_rows_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_REQUEST_RULES_H_
