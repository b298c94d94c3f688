// Included once for every instruction set (Highway's foreach_target), therefore guarded in its way.
#if defined(SHOAL_KERNELS_FOLD_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_FOLD_LANES_INL_H_
#undef SHOAL_KERNELS_FOLD_LANES_INL_H_
#else
#define SHOAL_KERNELS_FOLD_LANES_INL_H_
#endif

#include <cstddef>

#include <hwy/highway.h>

#include "kernels/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

using FloatLanes = hwy::HWY_NAMESPACE::CappedTag<float, kLanes>;
// Lanes in a vector, and vectors that hold all kLanes.
constexpr size_t kLaneWidth = hwy::HWY_NAMESPACE::MaxLanes(FloatLanes());
constexpr size_t kLaneVectors = kLanes / kLaneWidth;

// Lanes of a vector, folded in halves.
template <class D>
HWY_INLINE float FoldVector(D d, hwy::HWY_NAMESPACE::Vec<D> v) {
  namespace hn = hwy::HWY_NAMESPACE;
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return FoldVector(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// FoldLanes (lanes.h) of kLaneVectors vectors.
HWY_INLINE float FoldVectors(const hwy::HWY_NAMESPACE::Vec<FloatLanes>* v) {
  namespace hn = hwy::HWY_NAMESPACE;
  const FloatLanes d;
  if constexpr (kLaneVectors == 1) {
    return FoldVector(d, v[0]);
  } else if constexpr (kLaneVectors == 2) {
    return FoldVector(d, hn::Add(v[0], v[1]));
  } else {
    return FoldVector(d, hn::Add(hn::Add(v[0], v[2]), hn::Add(v[1], v[3])));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // SHOAL_KERNELS_FOLD_LANES_INL_H_
