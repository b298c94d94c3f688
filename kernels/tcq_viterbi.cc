#include "kernels/tcq_viterbi.h"

#include <algorithm>
#include <array>

#include "kernels/tcq.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tcq_viterbi.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// One step of every chain. The squared error (x - 16 v)^2 less x^2, over 32, is 8 v^2 - x v: `squares` is
// eight times 8 v^2 of every window plus its three lowest bits, which say where a path came from and, of equal
// costs, take the smallest. `costs` [state][chain] are multiples of eight before and after; the choices go to
// `decisions` [state][chain].
void Step(const int16_t* x, const int32_t* squares, int32_t* costs, uint8_t* decisions) {
  const hn::CappedTag<int32_t, kTcqChains> d;
  const hn::Rebind<int16_t, decltype(d)> narrow;
  const hn::Rebind<uint8_t, decltype(d)> bytes;
  alignas(64) int32_t before[kTcqStates * kTcqChains];
  const auto tag = hn::Set(d, 7);
  for (int64_t chain = 0; chain < kTcqChains; chain += static_cast<int64_t>(hn::Lanes(d))) {
    const auto eight_x = hn::ShiftLeft<3>(hn::PromoteTo(d, hn::LoadU(narrow, x + chain)));
    // The part of x v that a window's lower half gives depends on the state before alone.
    for (int low = 0; low < 16; ++low) {
      const auto product = hn::Mul(eight_x, hn::Set(d, kTcqLow[low] - kTcqCenter));
      for (int state = low; state < kTcqStates; state += 16) {
        const auto cost = hn::LoadU(d, costs + state * kTcqChains + chain);
        hn::Store(hn::Sub(cost, product), d, before + state * kTcqChains + chain);
      }
    }
    for (int high = 0; high < 16; ++high) {
      const auto product = hn::Mul(eight_x, hn::Set(d, kTcqHigh[high]));
      for (int state = 2 * high; state < 2 * high + 2; ++state) {
        const int32_t* from = before + (8 * state % kTcqStates) * kTcqChains + chain;
        auto best = hn::Add(hn::Load(d, from), hn::Set(d, squares[8 * state]));
        for (int i = 1; i < 8; ++i) {
          best = hn::Min(best, hn::Add(hn::Load(d, from + i * kTcqChains),
                                       hn::Set(d, squares[8 * state + i])));
        }
        hn::StoreU(hn::DemoteTo(bytes, hn::And(best, tag)), bytes,
                   decisions + state * kTcqChains + chain);
        hn::StoreU(hn::Sub(hn::AndNot(tag, best), product), d, costs + state * kTcqChains + chain);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
namespace {

HWY_EXPORT(Step);

constexpr int64_t kStepBytes = kTcqStates * kTcqChains;
constexpr int64_t kLookBack = 128;
constexpr int64_t kMaxDecided = 1024 + kLookBack;
constexpr int64_t kStepsToRebase = 16;
constexpr int32_t kUnreachable = 1 << 28;

std::array<int32_t, kTcqWindows> Squares() {
  std::array<int32_t, kTcqWindows> squares{};
  for (uint32_t w = 0; w < kTcqWindows; ++w) {
    const int32_t value = TcqValue(w);
    squares[w] = 8 * 8 * value * value + static_cast<int32_t>(w & 7);
  }
  return squares;
}

// Takes the least cost of every chain off all its states, so that costs stay small.
void Rebase(int32_t* costs) {
  for (int64_t chain = 0; chain < kTcqChains; ++chain) {
    int32_t least = costs[chain];
    for (int64_t state = 1; state < kTcqStates; ++state) {
      least = std::min(least, costs[state * kTcqChains + chain]);
    }
    for (int64_t state = 0; state < kTcqStates; ++state) {
      costs[state * kTcqChains + chain] -= least;
    }
  }
}

}  // namespace

TcqViterbi::TcqViterbi() : costs_(kTcqStates * kTcqChains), decisions_(kMaxDecided * kStepBytes) {}

void TcqViterbi::Search(const int16_t* x, int64_t steps, uint8_t* symbols) {
  const auto step = HWY_DYNAMIC_DISPATCH(Step);
  const std::array<int32_t, kTcqWindows> squares = Squares();
  std::fill(costs_.begin(), costs_.end(), kUnreachable);
  std::fill_n(costs_.begin() + kTcqStart / 8 * kTcqChains, kTcqChains, 0);
  num_decided_ = 0;
  for (int64_t i = 0; i < steps; ++i) {
    if (num_decided_ == kMaxDecided) {
      constexpr int64_t kOld = kMaxDecided - kLookBack;
      TraceBack(kOld, symbols);
      symbols += kOld * kTcqChains;
      std::copy(decisions_.begin() + kOld * kStepBytes, decisions_.end(), decisions_.begin());
      num_decided_ = kLookBack;
    }
    step(x + i * kTcqChains, squares.data(), costs_.data(),
         decisions_.data() + num_decided_ * kStepBytes);
    ++num_decided_;
    if (i % kStepsToRebase == kStepsToRebase - 1) {
      Rebase(costs_.data());
    }
  }
  TraceBack(num_decided_, symbols);
}

void TcqViterbi::TraceBack(int64_t count, uint8_t* symbols) const {
  uint32_t states[kTcqChains] = {};
  for (int64_t chain = 0; chain < kTcqChains; ++chain) {
    for (uint32_t state = 1; state < kTcqStates; ++state) {
      if (costs_[state * kTcqChains + chain] < costs_[states[chain] * kTcqChains + chain]) {
        states[chain] = state;
      }
    }
  }
  for (int64_t i = num_decided_ - 1; i >= 0; --i) {
    const uint8_t* decisions = decisions_.data() + i * kStepBytes;
    for (int64_t chain = 0; chain < kTcqChains; ++chain) {
      const uint32_t window = states[chain] << 3 | decisions[states[chain] * kTcqChains + chain];
      states[chain] = window % kTcqStates;
      if (i < count) {
        symbols[i * kTcqChains + chain] = static_cast<uint8_t>(window / kTcqStates);
      }
    }
  }
}

}  // namespace shoal
#endif  // HWY_ONCE
