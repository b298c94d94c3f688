#include "kernels/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "kernels/lanes.h"
#include "kernels/math.h"
#include "kernels/math_vectors.h"

namespace shoal {
namespace {

// What a head knows of the blocks before.
struct Softmax {
  double maximum = -std::numeric_limits<double>::infinity();
  double weight_sum = 0;
};

// Turns a head's scores of a block into weights, relative to the largest score until now.
void Weigh(std::span<double> scores, std::span<float> out, Softmax& softmax, float* weights) {
  const double block_maximum = *std::max_element(scores.begin(), scores.end());
  if (block_maximum > softmax.maximum) {
    const double rescale = Exp(softmax.maximum - block_maximum);
    softmax.weight_sum *= rescale;
    for (float& value : out) {
      value *= static_cast<float>(rescale);
    }
    softmax.maximum = block_maximum;
  }
  for (double& score : scores) {
    score -= softmax.maximum;
  }
  ExpAll(scores);
  for (size_t s = 0; s < scores.size(); ++s) {
    softmax.weight_sum += scores[s];
    weights[s] = static_cast<float>(scores[s]);
  }
}

}  // namespace

void ScalarScoreLatents(const LatentAttentionArgs& args, const LatentBlock& block,
                        LatentScores& scores) {
  const int64_t n = args.row_size();
  for (int64_t h = 0; h < args.num_heads; ++h) {
    for (int64_t s = 0; s < block.count; ++s) {
      const float* row = args.cache + (block.begin + s) * n;
      scores[h][s] = args.scale * double{FloatLaneDot(args.query + h * n, row, n)};
    }
  }
}

void ScalarAddLatents(const LatentAttentionArgs& args, const LatentBlock& block,
                      const LatentWeights& weights) {
  for (int64_t h = 0; h < args.num_heads; ++h) {
    float* out = args.out + h * args.latent_size;
    for (int64_t s = 0; s < block.count; ++s) {
      const float* latent = args.cache + (block.begin + s) * args.row_size();
      for (int64_t r = 0; r < args.latent_size; ++r) {
        out[r] = std::fma(weights[h][s], latent[r], out[r]);
      }
    }
  }
}

void LatentAttention(const LatentAttentionArgs& args) {
  const auto out_of = [&args](int64_t head) {
    return std::span(args.out + head * args.latent_size, static_cast<size_t>(args.latent_size));
  };
  std::fill_n(args.out, args.num_heads * args.latent_size, 0.0F);
  Softmax softmax[kMostLatentHeads];
  LatentScores scores;
  LatentWeights weights;
  for (int64_t begin = 0; begin < args.num_positions; begin += kLatentBlock) {
    const LatentBlock block{begin, std::min(kLatentBlock, args.num_positions - begin)};
    ScoreLatents(args, block, scores);
    for (int64_t h = 0; h < args.num_heads; ++h) {
      Weigh({scores[h], static_cast<size_t>(block.count)}, out_of(h), softmax[h], weights[h]);
    }
    AddLatents(args, block, weights);
  }
  for (int64_t h = 0; h < args.num_heads; ++h) {
    for (float& value : out_of(h)) {
      value = static_cast<float>(double{value} / softmax[h].weight_sum);
    }
  }
}

}  // namespace shoal
