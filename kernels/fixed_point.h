// The int64 fixed point in which expert outputs are added (docs/design.md, "Exactness"): scale
// 2^36.
#ifndef SHOAL_KERNELS_FIXED_POINT_H_
#define SHOAL_KERNELS_FIXED_POINT_H_

#include <cstdint>
#include <span>

namespace shoal {

inline constexpr int kFixedPointBits = 36;
inline constexpr double kFixedPointScale = 68719476736.0;  // 2^36
// 2^17; a larger term could overflow a sum of many.
inline constexpr double kFixedPointTermLimit = 131072.0;

// out[i] = static_cast<double>(values[i]), rounded once, of the same length. In operations that every vector unit
// has, which few have for 64 bits.
void IntegersToDoubles(std::span<const int64_t> values, std::span<double> out);

// out[i] += round_to_even(terms[i] * 2^36). Returns false, and leaves `out` unspecified, where a
// term is NaN or its magnitude exceeds 2^17.
bool AddFixedPoint(std::span<const double> terms, std::span<int64_t> out);

// out[i] += sums[i], of the same length. Sums that a sound backend never gives wrap round.
void AddSums(std::span<const int64_t> sums, std::span<int64_t> out);

// The float nearest to sum * 2^-36.
float FromFixedPoint(int64_t sum);

}  // namespace shoal

#endif  // SHOAL_KERNELS_FIXED_POINT_H_
