// Functions of many elements with every instruction set that this CPU can play, against those of one, bit for bit.
#include "kernels/math_vectors.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <hwy/highway.h>

#include "kernels/math.h"

namespace shoal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Of every size, where results leave the range, and at the borders of the formulas.
std::vector<double> Arguments() {
  std::vector<double> x = {0.0,      -0.0,    kInfinity, -kInfinity, std::nan(""), 709.78,
                           709.79,   710.0,   -745.1,    -745.2,     -745.3,       -708.4,
                           5e-324,   -5e-324, 1e300,     -1e300,     0.34657,      0.3465736,
                           -0.34658, 1.0,     -1.0,      1e-17,      20.0,         -20.0};
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  for (const double spread : {1e-9, 0.1, 1.0, 10.0, 300.0}) {
    for (int i = 0; i < 2000; ++i) {
      x.push_back(spread * normal(random));
    }
  }
  return x;
}

void ExpectSame(void (*all)(std::span<double>), double (*one)(double)) {
  const std::vector<double> arguments = Arguments();
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    for (const size_t size :
         {size_t{0}, size_t{1}, size_t{7}, arguments.size() - 1, arguments.size()}) {
      std::vector<double> x(arguments.begin(), arguments.begin() + static_cast<int64_t>(size));
      x.push_back(123.25);  // which is not theirs
      all(std::span(x).first(size));
      for (size_t i = 0; i < size; ++i) {
        const double expected = one(arguments[i]);
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(x[i])) << arguments[i];
        } else {
          ASSERT_EQ(std::bit_cast<uint64_t>(x[i]), std::bit_cast<uint64_t>(expected))
              << hwy::TargetName(target) << ": of " << arguments[i] << " " << x[i] << ", expected "
              << expected;
        }
      }
      EXPECT_EQ(x.back(), 123.25);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

TEST(MathVectorsTest, ExponentialsAreThoseOfOne) { ExpectSame(ExpAll, Exp); }
TEST(MathVectorsTest, SigmoidsAreThoseOfOne) { ExpectSame(SigmoidAll, Sigmoid); }
TEST(MathVectorsTest, SilusAreThoseOfOne) { ExpectSame(SiluAll, Silu); }
TEST(MathVectorsTest, SoftplusesAreThoseOfOne) { ExpectSame(SoftplusAll, Softplus); }

}  // namespace
}  // namespace shoal
