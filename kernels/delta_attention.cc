#include "kernels/delta_attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/lanes.h"
#include "kernels/math.h"
#include "kernels/math_vectors.h"

namespace shoal {
namespace {

// Elements that are widened to double at a time.
constexpr int64_t kAtOnce = 64;

float ToFloat(double value) { return static_cast<float>(value); }

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
    for (int64_t begin = channel_begin; begin < channel_end; begin += kAtOnce) {
      const int64_t count = std::min(kAtOnce, channel_end - begin);
      double sums[kAtOnce] = {};
      for (int64_t j = 0; j < args.kernel; ++j) {
        const float* x = input(t + j) + begin;
        for (int64_t i = 0; i < count; ++i) {
          sums[i] =
              std::fma(double{args.taps[(begin + i) * args.kernel + j]}, double{x[i]}, sums[i]);
        }
      }
      SiluAll({sums, static_cast<size_t>(count)});
      std::transform(sums, sums + count, args.out + t * args.channels + begin, ToFloat);
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
  for (size_t begin = 0; begin < z.size(); begin += kAtOnce) {
    const size_t count = std::min(size_t{kAtOnce}, z.size() - begin);
    double values[kAtOnce];
    std::copy_n(z.data() + begin, count, values);
    SoftplusAll({values, count});
    std::transform(values, values + count, values, [rate](double x) { return -rate * x; });
    ExpAll({values, count});
    std::transform(values, values + count, decay.data() + begin, ToFloat);
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
  for (int64_t begin = 0; begin < n; begin += kAtOnce) {
    const int64_t count = std::min(kAtOnce, n - begin);
    double opened[kAtOnce];
    std::copy_n(gate.data() + begin, count, opened);
    SigmoidAll({opened, static_cast<size_t>(count)});
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(begin + i);
      out[at] = static_cast<float>(double{o[at]} * factor * double{weight[at]} * opened[i]);
    }
  }
}

}  // namespace shoal
