#include "coordinator/service/plan_message.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "expert_node/service/slice_message.h"
#include "shoal/v1/cluster.pb.h"

namespace shoal {
namespace {

using SliceMessages = google::protobuf::RepeatedPtrField<v1::ExpertSlice>;

absl::StatusOr<std::vector<ExpertSlice>> Slices(const SliceMessages& messages,
                                                const std::string& field) {
  std::vector<ExpertSlice> slices;
  slices.reserve(static_cast<size_t>(messages.size()));
  for (const v1::ExpertSlice& message : messages) {
    SHOAL_ASSIGN_OR_RETURN(slices.emplace_back(),
                           FromMessage(message, absl::StrCat(field, "[", slices.size(), "]")));
  }
  return slices;
}

}  // namespace

void ToMessage(const PoolPlan& plan, v1::Plan* message) {
  message->set_identity(plan.identity);
  message->set_epoch(plan.epoch);
  for (const PoolNode& node : plan.nodes) {
    v1::PlannedNode& planned = *message->add_nodes();
    planned.set_name(node.name);
    planned.set_address(node.address);
    for (const ExpertSlice& slice : node.slices) {
      ToMessage(slice, planned.add_slices());
    }
    for (const ExpertSlice& slice : node.copies) {
      ToMessage(slice, planned.add_copies());
    }
  }
}

absl::StatusOr<PoolPlan> FromMessage(const v1::Plan& message) {
  PoolPlan plan{message.identity(), message.epoch(), {}};
  for (const v1::PlannedNode& planned : message.nodes()) {
    const std::string field = absl::StrCat("plan.nodes[", plan.nodes.size(), "]");
    PoolNode node{planned.name(), planned.address()};
    SHOAL_ASSIGN_OR_RETURN(node.slices, Slices(planned.slices(), field + ".slices"));
    SHOAL_ASSIGN_OR_RETURN(node.copies, Slices(planned.copies(), field + ".copies"));
    plan.nodes.push_back(std::move(node));
  }
  return plan;
}

}  // namespace shoal
