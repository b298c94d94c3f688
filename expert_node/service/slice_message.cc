#include "expert_node/service/slice_message.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/container/slice_json.h"
#include "common/status/status_macros.h"
#include "shoal/v1/expert_node.pb.h"

namespace shoal {

void ToMessage(const ExpertSlice& slice, v1::ExpertSlice* message) {
  message->mutable_units()->set_begin(static_cast<uint32_t>(slice.units.begin));
  message->mutable_units()->set_end(static_cast<uint32_t>(slice.units.end));
  message->mutable_experts()->set_begin(static_cast<uint32_t>(slice.experts.begin));
  message->mutable_experts()->set_end(static_cast<uint32_t>(slice.experts.end));
}

absl::StatusOr<ExpertSlice> FromMessage(const v1::ExpertSlice& message, absl::string_view field) {
  // An absent message reads as [0, 0), which is empty.
  const ExpertSlice slice{{message.units().begin(), message.units().end()},
                          {message.experts().begin(), message.experts().end()}};
  if (slice.units.size() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".units is absent or empty: [",
                                                   slice.units.begin, ", ", slice.units.end, ")"));
  }
  if (slice.experts.size() <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(field, ".experts is absent or empty: [",
                                                   slice.experts.begin, ", ", slice.experts.end,
                                                   ")"));
  }
  return slice;
}

absl::StatusOr<std::vector<ExpertSlice>> HoldingsOf(const v1::DescribeReply& node,
                                                    const ExpertSlice& whole) {
  SHOAL_RETURN_IF_ERROR(CheckNodeName(node.name(), "name"));
  // Before they are compared with each other, which takes quadratic time.
  if (node.slices_size() > static_cast<int>(kMaxSlices)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it says it holds ", node.slices_size(), " slices; at most ", kMaxSlices, " are accepted"));
  }
  std::vector<ExpertSlice> slices;
  for (const v1::ExpertSlice& message : node.slices()) {
    SHOAL_ASSIGN_OR_RETURN(const ExpertSlice slice, FromMessage(message, "slices"));
    slices.push_back(slice);
  }
  SHOAL_RETURN_IF_ERROR(CheckSlices(whole, slices, "what it says it holds"));
  return slices;
}

}  // namespace shoal
