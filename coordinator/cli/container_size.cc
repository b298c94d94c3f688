#include "coordinator/cli/container_size.h"

namespace shoal {
namespace {

double BitsPerWeight(uint64_t bytes, uint64_t weights) {
  return weights == 0 ? 0 : 8 * static_cast<double>(bytes) / static_cast<double>(weights);
}

}  // namespace

double ContainerSize::bits_per_weight() const {
  return BitsPerWeight(trunk_bytes + expert_bytes, trunk_weights + expert_weights);
}

double ContainerSize::expert_bits_per_weight() const {
  return BitsPerWeight(expert_bytes, expert_weights);
}

ContainerSize SizeOf(const Manifest& manifest) {
  ContainerSize size;
  for (const FileEntry& file : manifest.files) {
    size.total_bytes += file.size_bytes;
  }
  for (const TrunkEntry& tensor : manifest.trunk) {
    uint64_t weights = 1;
    for (const uint64_t length : tensor.shape) {
      weights *= length;
    }
    size.trunk_weights += weights;
    size.trunk_bytes += tensor.size_bytes;
  }
  const ModelConfig& config = manifest.config;
  // gate, up and down.
  const auto weights_per_expert =
      static_cast<uint64_t>(3 * config.hidden_size * config.moe.moe_intermediate_size);
  for (const BankEntry& bank : manifest.banks) {
    size.expert_weights += static_cast<uint64_t>(config.moe.num_experts) * weights_per_expert;
    const FileEntry* file = manifest.FindFile(BankFile(bank.layer));
    size.expert_bytes += file == nullptr ? 0 : file->size_bytes;
  }
  const FileEntry* codebooks = manifest.FindFile(kCodebooksFile);
  size.expert_bytes += codebooks == nullptr ? 0 : codebooks->size_bytes;
  return size;
}

}  // namespace shoal
