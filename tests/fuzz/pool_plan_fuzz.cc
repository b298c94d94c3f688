// Feeds the reader of a pool's plan, and what it accepts to the check for a container.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>

#include "coordinator/pool/pool_plan.h"

namespace {

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto plan = shoal::ParsePlan(text, "fuzz");
  if (!plan.ok()) {
    return 0;
  }
  const std::string written = shoal::SerializePlan(*plan);
  const auto again = shoal::ParsePlan(written, "again");
  Expect(again.ok() && shoal::SerializePlan(*again) == written);

  // A model with 4 experts of 8 units.
  shoal::Manifest manifest;
  manifest.identity = plan->identity;
  manifest.unit_layout.num_units = 8;
  manifest.config.moe.num_experts = 4;
  manifest.banks.resize(1);
  if (!shoal::CheckPlan(*plan, manifest).ok()) {
    return 0;
  }
  // What an accepted plan promises: every unit of every expert has one node that computes it, and
  // names can be those of directories.
  std::set<std::string> names;
  int64_t units = 0;
  for (const shoal::PoolNode& node : plan->nodes) {
    Expect(names.insert(node.name).second && node.name.find('/') == std::string::npos);
    for (const shoal::ExpertSlice& slice : node.slices) {
      units += slice.units.size() * slice.experts.size();
    }
  }
  Expect(units == 8 * 4);
  return 0;
}
