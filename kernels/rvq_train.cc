// Training of one codebook: residual k-means, then beam encoding and a joint refit in turn.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rvq_beam.h"
#include "kernels/rvq_encode.h"
#include "kernels/split_mix.h"

namespace shoal {
namespace {

constexpr int kDim = kSubVectorSize;
constexpr int kEntries = kCodebookEntries;
constexpr int kKMeansIterations = 8;

float SquaredDistance(const float* a, const float* b) {
  float sum = 0;
  for (int d = 0; d < kDim; ++d) {
    const float difference = a[d] - b[d];
    sum = std::fma(difference, difference, sum);
  }
  return sum;
}

struct Nearest {
  int entry = 0;
  float distance = 0;
};

Nearest FindNearest(const float* centers, const float* x) {
  Nearest best{0, SquaredDistance(centers, x)};
  for (int e = 1; e < kEntries; ++e) {
    const float distance = SquaredDistance(centers + e * kDim, x);
    if (distance < best.distance) {
      best = {e, distance};
    }
  }
  return best;
}

// One stage by Lloyd's algorithm on `residuals`, which are reduced by their nearest center at the
// end. A center that lost all its vectors moves to the vector that is worst represented.
void KMeansStage(std::vector<float>& residuals, int64_t count, SplitMix64Stream& random,
                 float* centers) {
  for (int e = 0; e < kEntries; ++e) {
    const auto pick = static_cast<int64_t>(random.Next() % static_cast<uint64_t>(count));
    std::copy_n(residuals.data() + pick * kDim, kDim, centers + e * kDim);
  }
  for (int iteration = 0; iteration < kKMeansIterations; ++iteration) {
    std::array<double, kEntries * kDim> sums{};
    std::array<int64_t, kEntries> members{};
    Nearest worst{0, -1};
    int64_t worst_vector = 0;
    for (int64_t i = 0; i < count; ++i) {
      const float* x = residuals.data() + i * kDim;
      const Nearest nearest = FindNearest(centers, x);
      members[static_cast<size_t>(nearest.entry)]++;
      for (int d = 0; d < kDim; ++d) {
        sums[static_cast<size_t>(nearest.entry * kDim + d)] += x[d];
      }
      if (nearest.distance > worst.distance) {
        worst = nearest;
        worst_vector = i;
      }
    }
    for (int e = 0; e < kEntries; ++e) {
      const int64_t n = members[static_cast<size_t>(e)];
      for (int d = 0; d < kDim; ++d) {
        centers[e * kDim + d] = n > 0 ? static_cast<float>(sums[static_cast<size_t>(e * kDim + d)] /
                                                           static_cast<double>(n))
                                      : residuals[static_cast<size_t>(worst_vector * kDim + d)];
      }
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    float* x = residuals.data() + i * kDim;
    const float* center = centers + FindNearest(centers, x).entry * kDim;
    for (int d = 0; d < kDim; ++d) {
      x[d] -= center[d];
    }
  }
}

// In-place Cholesky factorisation A = L L^T of a symmetric positive definite [n, n] matrix (lower
// triangle).
void Factorise(std::vector<double>& a, int n) {
  const auto at = [n](int i, int j) { return static_cast<size_t>(i * n + j); };
  for (int j = 0; j < n; ++j) {
    for (int i = j; i < n; ++i) {
      double sum = a[at(i, j)];
      for (int k = 0; k < j; ++k) {
        sum -= a[at(i, k)] * a[at(j, k)];
      }
      a[at(i, j)] = i == j ? std::sqrt(sum) : sum / a[at(j, j)];
    }
  }
}

// Solves L L^T x = b for one right-hand side.
void Solve(const std::vector<double>& l, int n, double* b) {
  const auto at = [n](int i, int j) { return static_cast<size_t>(i * n + j); };
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < i; ++k) {
      b[i] -= l[at(i, k)] * b[k];
    }
    b[i] /= l[at(i, i)];
  }
  for (int i = n - 1; i >= 0; --i) {
    for (int k = i + 1; k < n; ++k) {
      b[i] -= l[at(k, i)] * b[k];
    }
    b[i] /= l[at(i, i)];
  }
}

// The book of least squared error for given codes: a linear problem in its 256 entries, solved for
// all four stages together. The ridge keeps entries near their present place where the data does
// not decide (a constant may move between stages).
void JointRefit(std::span<const float> vectors, const std::vector<uint32_t>& codes,
                RvqFloatBook& book) {
  constexpr double kRidge = 0.1;  // vectors
  std::vector<double> normal(static_cast<size_t>(kRvqEntries * kRvqEntries));
  std::array<std::vector<double>, kDim> right;
  for (int d = 0; d < kDim; ++d) {
    right[static_cast<size_t>(d)].resize(kRvqEntries);
    for (int i = 0; i < kRvqEntries; ++i) {
      right[static_cast<size_t>(d)][static_cast<size_t>(i)] =
          kRidge * book[static_cast<size_t>(i * kDim + d)];
    }
  }
  for (int i = 0; i < kRvqEntries; ++i) {
    normal[static_cast<size_t>(i * kRvqEntries + i)] = kRidge;
  }
  for (size_t v = 0; v < codes.size(); ++v) {
    std::array<int, kRvqStages> chosen{};
    for (int s = 0; s < kRvqStages; ++s) {
      chosen[static_cast<size_t>(s)] = s * kEntries + RvqIndex(codes[v], s);
    }
    for (const int i : chosen) {
      for (const int j : chosen) {
        normal[static_cast<size_t>(i * kRvqEntries + j)] += 1;
      }
      for (int d = 0; d < kDim; ++d) {
        right[static_cast<size_t>(d)][static_cast<size_t>(i)] +=
            vectors[v * kDim + static_cast<size_t>(d)];
      }
    }
  }
  Factorise(normal, kRvqEntries);
  for (int d = 0; d < kDim; ++d) {
    double* solution = right[static_cast<size_t>(d)].data();
    Solve(normal, kRvqEntries, solution);
    for (int i = 0; i < kRvqEntries; ++i) {
      book[static_cast<size_t>(i * kDim + d)] = static_cast<float>(solution[i]);
    }
  }
}

// The book on a grid of 255 levels that covers its largest element.
RvqCodebook RoundToGrid(const RvqFloatBook& book, float* grid) {
  float largest = 0;
  for (const float value : book) {
    largest = std::max(largest, std::fabs(value));
  }
  *grid = largest > 0 ? largest / 127.0F : 1.0F;
  RvqCodebook rounded;
  for (size_t i = 0; i < book.size(); ++i) {
    const double steps = std::nearbyint(double{book[i]} / double{*grid});
    rounded.values[i] = static_cast<int8_t>(std::clamp(steps, -127.0, 127.0));
  }
  return rounded;
}

}  // namespace

RvqCodebook TrainRvqCodebook(std::span<const float> vectors, int64_t num_vectors,
                             const RvqTrainOptions& options, float* grid) {
  RvqFloatBook book{};
  SplitMix64Stream random(options.seed);
  std::vector<float> residuals(vectors.begin(), vectors.begin() + num_vectors * kDim);
  for (int stage = 0; stage < kRvqStages; ++stage) {
    KMeansStage(residuals, num_vectors, random, book.data() + stage * kEntries * kDim);
  }
  std::vector<uint32_t> codes(static_cast<size_t>(num_vectors));
  for (int iteration = 0; iteration < options.iterations; ++iteration) {
    const RvqBeamSearch search(book, options.beam);
    for (int64_t v = 0; v < num_vectors; ++v) {
      codes[static_cast<size_t>(v)] = search.Search(vectors.data() + v * kDim);
    }
    JointRefit(vectors, codes, book);
  }
  return RoundToGrid(book, grid);
}

}  // namespace shoal
