// The constants of the elementary functions, for one element (math.cc) and for many (math_vectors.cc).
#ifndef SHOAL_KERNELS_MATH_CONSTANTS_H_
#define SHOAL_KERNELS_MATH_CONSTANTS_H_

namespace shoal {

// Beyond these e^x is infinity or 0 in double.
inline constexpr double kExpLargest = 709.78;
inline constexpr double kExpSmallest = -745.2;

inline constexpr double kLog2E = 1.4426950408889634074;
// ln 2 split in two, the first with trailing zero bits so that n * kLn2High is exact.
inline constexpr double kLn2High = 6.93147180369123816490e-01;
inline constexpr double kLn2Low = 1.90821492927058770002e-10;

// 1/k! for k = 13 .. 0: the Taylor series of e^r, whose remainder for |r| <= ln(2)/2 is below
// 5e-18.
inline constexpr int kExpTerms = 14;
inline constexpr double kExpTaylor[kExpTerms] = {1.0 / 6227020800,
                                                 1.0 / 479001600,
                                                 1.0 / 39916800,
                                                 1.0 / 3628800,
                                                 1.0 / 362880,
                                                 1.0 / 40320,
                                                 1.0 / 5040,
                                                 1.0 / 720,
                                                 1.0 / 120,
                                                 1.0 / 24,
                                                 1.0 / 6,
                                                 1.0 / 2,
                                                 1.0,
                                                 1.0};

// 1/(2k+1) for k = 17 .. 0: ln((1+s)/(1-s)) = 2s * sum z^k/(2k+1) with z = s^2 <= 1/9.
inline constexpr int kAtanhTerms = 18;
inline constexpr double kAtanhSeries[kAtanhTerms] = {
    1.0 / 35, 1.0 / 33, 1.0 / 31, 1.0 / 29, 1.0 / 27, 1.0 / 25, 1.0 / 23, 1.0 / 21, 1.0 / 19,
    1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3,  1.0};

}  // namespace shoal

#endif  // SHOAL_KERNELS_MATH_CONSTANTS_H_
