// Feeds plans that come over the wire to what reads them, and what that accepts to the check for a
// container.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "coordinator/pool/pool_plan.h"
#include "coordinator/service/plan_message.h"
#include "shoal/v1/cluster.pb.h"

namespace {

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  shoal::v1::Plan message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) {
    return 0;
  }
  const auto plan = shoal::FromMessage(message);
  if (!plan.ok()) {
    Expect(absl::IsInvalidArgument(plan.status()));
    return 0;
  }
  // A model with 4 experts of 8 units.
  shoal::Manifest manifest;
  manifest.identity = std::string(64, 'a');
  manifest.unit_layout.num_units = 8;
  manifest.config.moe.num_experts = 4;
  manifest.banks.resize(1);
  if (!shoal::CheckPlan(*plan, manifest).ok()) {
    return 0;
  }
  Expect(plan->identity == manifest.identity && plan->epoch > 0);
  std::set<std::string> names;
  int64_t units = 0;
  for (const shoal::PoolNode& node : plan->nodes) {
    Expect(names.insert(node.name).second && node.name.find('/') == std::string::npos);
    for (const shoal::ExpertSlice& slice : node.slices) {
      Expect(slice.units.end <= 8 && slice.experts.end <= 4);
      units += slice.units.size() * slice.experts.size();
    }
  }
  Expect(units == 8 * 4);
  // The same plan goes on to others.
  shoal::v1::Plan again;
  shoal::ToMessage(*plan, &again);
  const auto back = shoal::FromMessage(again);
  Expect(back.ok() && shoal::SerializePlan(*back) == shoal::SerializePlan(*plan));
  return 0;
}
