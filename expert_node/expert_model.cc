#include "expert_node/expert_model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "kernels/fixed_point.h"

namespace shoal {
namespace {

// Terms of the largest accepted magnitude that an int64 can sum.
constexpr int64_t kMaxTerms =
    static_cast<int64_t>(0x1p63 / (kFixedPointTermLimit * kFixedPointScale)) - 1;

absl::StatusOr<ExpertModel> WithCodebooks(const Manifest& manifest,
                                          std::vector<LayerCodebooks> codebooks) {
  ExpertModel model{ExpertSizes::FromManifest(manifest), std::move(codebooks),
                    manifest.settings.seed};
  SHOAL_RETURN_IF_ERROR(model.Check());
  return model;
}

}  // namespace

std::optional<size_t> ExpertSizes::LayerIndex(int64_t layer) const {
  const auto it = std::lower_bound(layers.begin(), layers.end(), layer);
  if (it == layers.end() || *it != layer) {
    return std::nullopt;
  }
  return static_cast<size_t>(it - layers.begin());
}

ExpertSizes ExpertSizes::FromManifest(const Manifest& manifest) {
  ExpertSizes sizes;
  sizes.layout = manifest.unit_layout;
  sizes.num_experts = manifest.config.moe.num_experts;
  sizes.num_experts_per_token = manifest.config.moe.num_experts_per_token;
  sizes.layers = manifest.config.moe_layers();
  return sizes;
}

absl::StatusOr<ExpertModel> ExpertModel::FromContainer(const Container& container) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<LayerCodebooks> codebooks, container.ReadCodebooks());
  return WithCodebooks(container.manifest(), std::move(codebooks));
}

absl::StatusOr<ExpertModel> ExpertModel::FromPartition(const Partition& partition) {
  SHOAL_ASSIGN_OR_RETURN(std::vector<LayerCodebooks> codebooks, partition.ReadCodebooks());
  return WithCodebooks(partition.manifest(), std::move(codebooks));
}

absl::Status ExpertModel::Check() const {
  if (layers.empty() || num_experts <= 0 || num_experts_per_token <= 0) {
    return absl::FailedPreconditionError("the model has no MoE layer, so there are no experts");
  }
  if (num_experts_per_token > kMaxTerms / layout.num_units) {
    return absl::UnimplementedError(
        absl::StrCat(num_experts_per_token, " experts a token of ", layout.num_units,
                     " units are more terms than a fixed point sum holds, which is ", kMaxTerms));
  }
  const size_t books = HasCodebooks(layout.codec) ? layers.size() : 0;
  if (codebooks.size() != books) {
    return absl::InternalError(absl::StrCat("codebooks of ", codebooks.size(),
                                            " layers were read, the model has ", books));
  }
  return absl::OkStatus();
}

}  // namespace shoal
