// Feeds the reader of config.json, and where it accepts a model, the list of its tensors.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "common/io/checked_range.h"
#include "common/model/model_config.h"
#include "common/model/tensor_names.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = shoal::ParseModelConfig(text, "fuzz");
  if (!config.ok()) {
    return 0;
  }
  // What an accepted config promises: sums over the trunk fit 64 bits.
  uint64_t total = 0;
  for (const shoal::TrunkTensor& tensor : shoal::TrunkTensors(*config)) {
    const auto elements = shoal::CheckedProduct(tensor.shape);
    if (!elements || *elements == 0 || !shoal::RangeFits(total, *elements, uint64_t{1} << 50)) {
      std::abort();
    }
    total += *elements;
  }
  for (const int64_t layer : config->moe_layers()) {
    if (shoal::ExpertTensors(*config, layer, config->moe.num_experts - 1).gate.empty()) {
      std::abort();
    }
  }
  return 0;
}
