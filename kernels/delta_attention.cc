#include "kernels/delta_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/lanes.h"
#include "kernels/math.h"

namespace shoal {
namespace {

// row *= decay, and the dot product of the result with k.
float DecayAndPredict(float* row, const float* previous, const float* decay, const float* k,
                      int64_t n) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      row[i + l] = previous[i + l] * decay[i + l];
      lane[l] = std::fma(row[i + l], k[i + l], lane[l]);
    }
  }
  for (int64_t l = 0; i + l < n; ++l) {
    row[i + l] = previous[i + l] * decay[i + l];
    lane[l] = std::fma(row[i + l], k[i + l], lane[l]);
  }
  return FoldLanes(lane);
}

// row += delta * k, and the dot product of the result with q.
float UpdateAndRead(float* row, float delta, const float* k, const float* q, int64_t n) {
  float lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      row[i + l] = std::fma(delta, k[i + l], row[i + l]);
      lane[l] = std::fma(row[i + l], q[i + l], lane[l]);
    }
  }
  for (int64_t l = 0; i + l < n; ++l) {
    row[i + l] = std::fma(delta, k[i + l], row[i + l]);
    lane[l] = std::fma(row[i + l], q[i + l], lane[l]);
  }
  return FoldLanes(lane);
}

}  // namespace

void ShortConv(const ShortConvArgs& args, int64_t channel_begin, int64_t channel_end) {
  const int64_t tail = args.kernel - 1;
  // Row t of the sequence "tail, then chunk"; t counts from the oldest tail row.
  const auto input = [&](int64_t t) {
    return t < tail ? args.tail_in + t * args.channels : args.x + (t - tail) * args.channels;
  };
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    for (int64_t c = channel_begin; c < channel_end; ++c) {
      double sum = 0;
      for (int64_t j = 0; j < args.kernel; ++j) {
        sum = std::fma(double{args.taps[c * args.kernel + j]}, double{input(t + j)[c]}, sum);
      }
      args.out[t * args.channels + c] = static_cast<float>(Silu(sum));
    }
  }
  for (int64_t t = 0; t < tail; ++t) {
    const float* from = input(args.num_tokens + t);
    std::copy(from + channel_begin, from + channel_end,
              args.tail_out + t * args.channels + channel_begin);
  }
}

void L2Normalize(std::span<float> x, double scale) {
  constexpr double kEpsilon = 1e-6;
  const double sum = LaneDot(x.data(), x.data(), static_cast<int64_t>(x.size()));
  const double factor = scale / std::sqrt(sum + kEpsilon);
  for (float& value : x) {
    value = static_cast<float>(double{value} * factor);
  }
}

void DecayGate(double a_log, std::span<const float> z, std::span<float> decay) {
  const double rate = Exp(a_log);
  for (size_t i = 0; i < z.size(); ++i) {
    decay[i] = static_cast<float>(Exp(-rate * Softplus(z[i])));
  }
}

void ScalarDeltaAttentionHead(const DeltaHeadArgs& args) {
  const int64_t n = args.head_dim;
  for (int64_t t = 0; t < args.num_tokens; ++t) {
    const float* q = args.q + t * args.stride;
    const float* k = args.k + t * args.stride;
    const float* v = args.v + t * args.stride;
    const float* decay = args.decay + t * args.stride;
    const float beta = args.beta[t * args.beta_stride];
    const float* previous = t == 0 ? args.state_in : args.state_out;
    for (int64_t i = 0; i < n; ++i) {
      float* row = args.state_out + i * n;
      const float predicted = DecayAndPredict(row, previous + i * n, decay, k, n);
      const float delta = beta * (v[i] - predicted);
      args.out[t * args.stride + i] = UpdateAndRead(row, delta, k, q, n);
    }
  }
}

void GatedHeadNorm(std::span<const float> o, std::span<const float> weight, double eps,
                   std::span<const float> gate, std::span<float> out) {
  const auto n = static_cast<int64_t>(o.size());
  const double mean_square = LaneDot(o.data(), o.data(), n) / static_cast<double>(n);
  const double factor = 1.0 / std::sqrt(mean_square + eps);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(double{o[i]} * factor * double{weight[i]} * Sigmoid(gate[i]));
  }
}

}  // namespace shoal
