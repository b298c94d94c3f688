// Included once for every instruction set (Highway's foreach_target), therefore guarded in its way.
#if defined(SHOAL_KERNELS_CONSTANT_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHOAL_KERNELS_CONSTANT_LOOP_INL_H_
#undef SHOAL_KERNELS_CONSTANT_LOOP_INL_H_
#else
#define SHOAL_KERNELS_CONSTANT_LOOP_INL_H_
#endif

#include <cstddef>
#include <type_traits>
#include <utility>

#include <hwy/highway.h>

// For lambdas: compiled for the instruction set, and into the function around them. A call that is left of one costs as
// much as what it does.
#undef SHOAL_INLINE_LAMBDA
#define SHOAL_INLINE_LAMBDA HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace shoal {
namespace HWY_NAMESPACE {

template <class F, size_t... kIndex>
HWY_INLINE void ForIndices(const F& f, std::index_sequence<kIndex...>) {
  (f(std::integral_constant<size_t, kIndex>()), ...);
}

// f(0), ..., f(kCount - 1), written out with constants as indices: arrays of vectors stay in registers then, which a
// loop does not promise.
template <size_t kCount, class F>
HWY_INLINE void ForConstants(const F& f) {
  ForIndices(f, std::make_index_sequence<kCount>());
}

}  // namespace HWY_NAMESPACE
}  // namespace shoal
HWY_AFTER_NAMESPACE();

#endif  // SHOAL_KERNELS_CONSTANT_LOOP_INL_H_
