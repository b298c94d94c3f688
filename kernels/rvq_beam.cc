#include "kernels/rvq_beam.h"

#include <algorithm>
#include <cmath>

namespace shoal {
namespace {

float EntryDot(const RvqFloatBook& book, int i, int j) {
  float sum = 0;
  for (int d = 0; d < kSubVectorSize; ++d) {
    sum = std::fma(book[static_cast<size_t>(i * kSubVectorSize + d)],
                   book[static_cast<size_t>(j * kSubVectorSize + d)], sum);
  }
  return sum;
}

}  // namespace

RvqBeamSearch::RvqBeamSearch(const RvqFloatBook& book, int beam)
    : beam_(beam),
      transposed_(static_cast<size_t>(kSubVectorSize * kRvqEntries)),
      norms_(kRvqEntries),
      double_gram_(static_cast<size_t>(kRvqEntries * kRvqEntries)) {
  for (int i = 0; i < kRvqEntries; ++i) {
    for (int d = 0; d < kSubVectorSize; ++d) {
      transposed_[static_cast<size_t>(d * kRvqEntries + i)] =
          book[static_cast<size_t>(i * kSubVectorSize + d)];
    }
    norms_[static_cast<size_t>(i)] = EntryDot(book, i, i);
    for (int j = 0; j < kRvqEntries; ++j) {
      double_gram_[static_cast<size_t>(i * kRvqEntries + j)] = 2 * EntryDot(book, i, j);
    }
  }
}

void RvqBeamSearch::Offer(const float* costs, uint32_t prefix, int stage, Beam& next) const {
  constexpr int kGroup = 16;  // candidates that one vector comparison can rule out
  for (int first = 0; first < kCodebookEntries; first += kGroup) {
    if (next.size == beam_) {
      const float threshold = next.best[static_cast<size_t>(beam_ - 1)].cost;
      int any = 0;
      for (int i = 0; i < kGroup; ++i) {
        any |= static_cast<int>(costs[first + i] < threshold);
      }
      if (any == 0) {
        continue;
      }
    }
    for (int entry = first; entry < first + kGroup; ++entry) {
      const float cost = costs[entry];
      if (next.size == beam_ && !(cost < next.best[static_cast<size_t>(beam_ - 1)].cost)) {
        continue;
      }
      next.size = std::min(next.size + 1, beam_);
      int at = next.size - 1;
      for (; at > 0 && cost < next.best[static_cast<size_t>(at - 1)].cost; --at) {
        next.best[static_cast<size_t>(at)] = next.best[static_cast<size_t>(at - 1)];
      }
      next.best[static_cast<size_t>(at)] = {cost, prefix | static_cast<uint32_t>(entry)
                                                               << (kRvqIndexBits * stage)};
    }
  }
}

uint32_t RvqBeamSearch::Search(const float* x) const {
  // base[i] = |c_i|^2 - 2 c_i . x
  float base[kRvqEntries];
  for (int i = 0; i < kRvqEntries; ++i) {
    base[i] = norms_[static_cast<size_t>(i)];
  }
  for (int d = 0; d < kSubVectorSize; ++d) {
    const float factor = -2 * x[d];
    const float* column = transposed_.data() + d * kRvqEntries;
    for (int i = 0; i < kRvqEntries; ++i) {
      base[i] = std::fma(factor, column[i], base[i]);
    }
  }
  Beam beam;
  Offer(base, 0, 0, beam);
  for (int stage = 1; stage < kRvqStages; ++stage) {
    Beam next;
    for (int b = 0; b < beam.size; ++b) {
      const Candidate& parent = beam.best[static_cast<size_t>(b)];
      float costs[kCodebookEntries];
      for (int e = 0; e < kCodebookEntries; ++e) {
        costs[e] = parent.cost + base[stage * kCodebookEntries + e];
      }
      for (int earlier = 0; earlier < stage; ++earlier) {
        const int index = RvqIndex(parent.code, earlier);
        const float* gram = double_gram_.data() +
                            (earlier * kCodebookEntries + index) * kRvqEntries +
                            stage * kCodebookEntries;
        for (int e = 0; e < kCodebookEntries; ++e) {
          costs[e] += gram[e];
        }
      }
      Offer(costs, parent.code, stage, next);
    }
    beam = next;
  }
  return beam.best[0].code;
}

}  // namespace shoal
