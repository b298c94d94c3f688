#include "kernels/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/lanes.h"
#include "kernels/math.h"

namespace shoal {

void LatentAttention(const LatentAttentionArgs& args) {
  const int64_t row_size = args.latent_size + args.shared_size;
  float* out = args.out;
  std::fill(out, out + args.latent_size, 0.0F);
  double maximum = -std::numeric_limits<double>::infinity();
  double weight_sum = 0;
  for (int64_t begin = 0; begin < args.num_positions; begin += kLatentBlock) {
    const int64_t count = std::min(kLatentBlock, args.num_positions - begin);
    const float* block = args.cache + begin * row_size;
    double scores[kLatentBlock];
    double block_maximum = maximum;
    for (int64_t s = 0; s < count; ++s) {
      scores[s] = args.scale * double{FloatLaneDot(args.query, block + s * row_size, row_size)};
      block_maximum = std::max(block_maximum, scores[s]);
    }
    if (block_maximum > maximum) {
      const double rescale = Exp(maximum - block_maximum);
      weight_sum *= rescale;
      for (int64_t r = 0; r < args.latent_size; ++r) {
        out[r] *= static_cast<float>(rescale);
      }
      maximum = block_maximum;
    }
    for (int64_t s = 0; s < count; ++s) {
      const double weight = Exp(scores[s] - maximum);
      weight_sum += weight;
      const auto w = static_cast<float>(weight);
      const float* latent = block + s * row_size;
      for (int64_t r = 0; r < args.latent_size; ++r) {
        out[r] = std::fma(w, latent[r], out[r]);
      }
    }
  }
  for (int64_t r = 0; r < args.latent_size; ++r) {
    out[r] = static_cast<float>(double{out[r]} / weight_sum);
  }
}

}  // namespace shoal
