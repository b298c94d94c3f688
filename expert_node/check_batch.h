// What every backend refuses before it does anything.
#ifndef SHOAL_EXPERT_NODE_CHECK_BATCH_H_
#define SHOAL_EXPERT_NODE_CHECK_BATCH_H_

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "expert_node/expert_backend.h"
#include "expert_node/expert_model.h"

namespace shoal {

// ExpertBackend::Execute's INVALID_ARGUMENT, but for its slices: shapes that disagree, a layer or
// expert that is none, a row or weight that is not finite.
absl::Status CheckBatch(const ExpertSizes& model, const ExpertBackend::Batch& batch,
                        std::span<const int64_t> out);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_CHECK_BATCH_H_
