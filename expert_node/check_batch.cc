#include "expert_node/check_batch.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

absl::Status CheckBatch(const ExpertSizes& model, const ExpertBackend::Batch& batch,
                        std::span<const int64_t> out) {
  if (!model.LayerIndex(batch.layer)) {
    return absl::InvalidArgumentError(absl::StrCat("layer ", batch.layer, " has no experts"));
  }
  const auto rows = static_cast<size_t>(std::max<int64_t>(batch.num_rows, 0));
  const auto hidden_size = static_cast<size_t>(model.layout.hidden_size);
  const auto per_row = static_cast<size_t>(model.num_experts_per_token);
  if (rows == 0 || batch.rows.size() / hidden_size != rows ||
      batch.rows.size() % hidden_size != 0 || out.size() != batch.rows.size() ||
      batch.expert_ids.size() / per_row != rows || batch.expert_ids.size() % per_row != 0 ||
      batch.expert_weights.size() != batch.expert_ids.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "batch of ", batch.num_rows, " rows: ", batch.rows.size(), " activations, ", out.size(),
        " sums, ", batch.expert_ids.size(), " expert ids and ", batch.expert_weights.size(),
        " weights; a row has ", hidden_size, " activations and ", per_row, " experts"));
  }
  for (const int32_t expert : batch.expert_ids) {
    if (expert < 0 || expert >= model.num_experts) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", batch.layer, " expert ", expert,
                                                     " of ", model.num_experts,
                                                     ": there is no such expert"));
    }
  }
  if (!AllFinite(batch.rows) || !AllFinite(batch.expert_weights)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layer ", batch.layer, ": an activation or an expert weight is NaN or infinite"));
  }
  return absl::OkStatus();
}

}  // namespace shoal
