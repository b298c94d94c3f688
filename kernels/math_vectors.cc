#include "kernels/math_vectors.h"

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/math.h"
#include "kernels/math_constants.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math_vectors.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using DoubleVector = hn::Vec<Doubles>;

// 2^n for whole n in [-1022, 1023]. Added to 2^52, a number lies in the lowest bits of the sum.
HWY_INLINE DoubleVector PowersOfTwo(DoubleVector n) {
  const Doubles d;
  const hn::RebindToUnsigned<Doubles> bits;
  const auto biased = hn::Add(n, hn::Set(d, 0x1p52 + 1023));
  return hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(bits, biased)));
}

HWY_INLINE DoubleVector Exps(DoubleVector x) {
  const Doubles d;
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, kLog2E)));
  const auto r = hn::NegMulAdd(n, hn::Set(d, kLn2Low), hn::NegMulAdd(n, hn::Set(d, kLn2High), x));
  auto p = hn::Set(d, kExpTaylor[0]);
  for (int k = 1; k < kExpTerms; ++k) {
    p = hn::MulAdd(p, r, hn::Set(d, kExpTaylor[k]));
  }
  const auto half = hn::Trunc(hn::Mul(n, hn::Set(d, 0.5)));
  const auto finite = hn::Mul(hn::Mul(p, PowersOfTwo(half)), PowersOfTwo(hn::Sub(n, half)));
  const auto at_least_zero = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, kExpSmallest)), finite);
  const auto infinity = hn::Set(d, std::numeric_limits<double>::infinity());
  const auto in_range = hn::IfThenElse(hn::Gt(x, hn::Set(d, kExpLargest)), infinity, at_least_zero);
  return hn::IfThenElse(hn::IsNaN(x), x, in_range);
}

HWY_INLINE DoubleVector Log1pUnits(DoubleVector y) {
  const Doubles d;
  const auto s = hn::Div(y, hn::Add(hn::Set(d, 2.0), y));
  const auto z = hn::Mul(s, s);
  auto p = hn::Set(d, kAtanhSeries[0]);
  for (int k = 1; k < kAtanhTerms; ++k) {
    p = hn::MulAdd(p, z, hn::Set(d, kAtanhSeries[k]));
  }
  return hn::Mul(hn::Mul(hn::Set(d, 2.0), s), p);
}

HWY_INLINE DoubleVector Sigmoids(DoubleVector x) {
  const auto one = hn::Set(Doubles(), 1.0);
  return hn::Div(one, hn::Add(one, Exps(hn::Neg(x))));
}

HWY_INLINE DoubleVector Silus(DoubleVector x) {
  return hn::Div(x, hn::Add(hn::Set(Doubles(), 1.0), Exps(hn::Neg(x))));
}

HWY_INLINE DoubleVector Softpluses(DoubleVector x) {
  const auto positive = hn::Gt(x, hn::Zero(Doubles()));
  const auto magnitude = hn::IfThenElse(positive, hn::Neg(x), x);
  return hn::Add(hn::IfThenElseZero(positive, x), Log1pUnits(Exps(magnitude)));
}

// What does not fill a vector goes one by one, as everything does without fused multiply-adds.
template <DoubleVector (*kVectors)(DoubleVector), double (*kOne)(double)>
HWY_INLINE void ApplyToAll(double* x, size_t size) {
  size_t i = 0;
#if HWY_NATIVE_FMA
  const Doubles d;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    hn::StoreU(kVectors(hn::LoadU(d, x + i)), d, x + i);
  }
#endif
  for (; i < size; ++i) {
    x[i] = kOne(x[i]);
  }
}

void ExpOf(double* x, size_t size) { ApplyToAll<Exps, Exp>(x, size); }
void SigmoidOf(double* x, size_t size) { ApplyToAll<Sigmoids, Sigmoid>(x, size); }
void SiluOf(double* x, size_t size) { ApplyToAll<Silus, Silu>(x, size); }
void SoftplusOf(double* x, size_t size) { ApplyToAll<Softpluses, Softplus>(x, size); }

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shoal {
namespace {

HWY_EXPORT(ExpOf);
HWY_EXPORT(SigmoidOf);
HWY_EXPORT(SiluOf);
HWY_EXPORT(SoftplusOf);

}  // namespace

void ExpAll(std::span<double> x) { HWY_DYNAMIC_DISPATCH(ExpOf)(x.data(), x.size()); }
void SigmoidAll(std::span<double> x) { HWY_DYNAMIC_DISPATCH(SigmoidOf)(x.data(), x.size()); }
void SiluAll(std::span<double> x) { HWY_DYNAMIC_DISPATCH(SiluOf)(x.data(), x.size()); }
void SoftplusAll(std::span<double> x) { HWY_DYNAMIC_DISPATCH(SoftplusOf)(x.data(), x.size()); }

}  // namespace shoal
#endif  // HWY_ONCE
