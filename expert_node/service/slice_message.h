// Slices of the experts on the wire.
#ifndef SHOAL_EXPERT_NODE_SERVICE_SLICE_MESSAGE_H_
#define SHOAL_EXPERT_NODE_SERVICE_SLICE_MESSAGE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/expert_slice.h"

namespace shoal {

namespace v1 {
class DescribeReply;
class ExpertSlice;
}  // namespace v1

// `slice` is inside a model.
void ToMessage(const ExpertSlice& slice, v1::ExpertSlice* message);

// INVALID_ARGUMENT, beginning with `field`, where a range is absent or empty. Whether the slice is
// inside the model is left to CheckSlices.
absl::StatusOr<ExpertSlice> FromMessage(const v1::ExpertSlice& message, absl::string_view field);

// What a node says it holds, for coordinators: at most kMaxSlices (common/container/slice_json.h),
// inside `whole`, disjoint; and its name is one that a node may have. INVALID_ARGUMENT otherwise.
absl::StatusOr<std::vector<ExpertSlice>> HoldingsOf(const v1::DescribeReply& node,
                                                    const ExpertSlice& whole);

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_SLICE_MESSAGE_H_
