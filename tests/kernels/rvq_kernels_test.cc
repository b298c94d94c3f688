#include "kernels/rvq_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/expert_arithmetic.h"
#include "kernels/kernel_target.h"
#include "tests/kernels/kernel_variant.h"

namespace shoal {
namespace {

// Codes of a matrix as they lie in a unit, with other bytes between the positions.
struct Codes {
  Codes(int64_t num_positions, int64_t num_rows, int64_t gap, uint32_t seed)
      : positions(num_positions), rows(num_rows), stride(kRvqPlanes * num_rows + gap) {
    std::mt19937 random(seed);
    // Nothing behind the last position: to read on is an error that sanitizers see.
    bytes.resize(static_cast<size_t>((positions - 1) * stride + kRvqPlanes * rows));
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(random()); });
  }
  uint32_t CodeOf(int64_t position, int64_t row) const {
    uint32_t code = 0;
    for (int plane = 0; plane < kRvqPlanes; ++plane) {
      code |= uint32_t{bytes[static_cast<size_t>(position * stride + plane * rows + row)]}
              << (8 * plane);
    }
    return code;
  }

  int64_t positions;
  int64_t rows;
  int64_t stride;
  std::vector<uint8_t> bytes;
};

RvqCodebook RandomBook(uint32_t seed) {
  std::mt19937 random(seed);
  RvqCodebook book;
  for (int8_t& value : book.values) {
    value = static_cast<int8_t>(random());
  }
  return book;
}

std::vector<int32_t> RandomActivations(int64_t positions, int planes, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> any(-ActivationMax(planes), ActivationMax(planes));
  std::vector<int32_t> q(static_cast<size_t>(positions * kSubVectorSize));
  std::generate(q.begin(), q.end(), [&] { return any(random); });
  return q;
}

int64_t LongestSquare(const auto& vectors, size_t begin, size_t end) {
  int64_t longest = 0;
  for (size_t i = begin; i < end; i += 8) {
    int64_t square = 0;
    for (size_t d = i; d < i + 8; ++d) {
      square += int64_t{vectors[d]} * vectors[d];
    }
    longest = std::max(longest, square);
  }
  return longest;
}

// The step that table values of 64 positions from `first` on are rounded to.
int64_t StepOf(const RvqCodebook& book, const std::vector<int32_t>& q, size_t first) {
  const double bound = std::sqrt(static_cast<double>(LongestSquare(book.values, 0, 2048))) *
                       std::sqrt(static_cast<double>(
                           LongestSquare(q, 8 * first, std::min(q.size(), 8 * (first + 64)))));
  int64_t step = 1;
  while (bound > 32767.0 * static_cast<double>(step)) {
    step *= 2;
  }
  return step;
}

// By the definition: every weight of every row times its activation; what one entry gives is rounded in fast
// arithmetic.
std::vector<int64_t> Expected(const RvqCodebook& book, const std::vector<int32_t>& q,
                              const Codes& codes, ExpertArithmetic arithmetic,
                              std::vector<int64_t> sums) {
  for (int64_t p = 0; p < codes.positions; ++p) {
    const int64_t step = arithmetic == ExpertArithmetic::kExact
                             ? 1
                             : StepOf(book, q, static_cast<size_t>(p / 64 * 64));
    for (int64_t r = 0; r < codes.rows; ++r) {
      const uint32_t code = codes.CodeOf(p, r);
      for (int stage = 0; stage < kRvqStages; ++stage) {
        const int8_t* entry = book.entry(stage, RvqIndex(code, stage));
        int64_t value = 0;
        for (int d = 0; d < kSubVectorSize; ++d) {
          value += int64_t{entry[d]} * q[static_cast<size_t>(p * kSubVectorSize + d)];
        }
        const double steps = static_cast<double>(value) / static_cast<double>(step);
        sums[static_cast<size_t>(r)] += step * static_cast<int64_t>(std::floor(steps + 0.5));
      }
    }
  }
  return sums;
}

std::vector<int64_t> Computed(const RvqKernels& kernels, const RvqCodebook& book,
                              const std::vector<int32_t>& q, const Codes& codes,
                              std::vector<int64_t> sums) {
  std::vector<int32_t> tables(static_cast<size_t>(codes.positions * kRvqTableElements));
  kernels.build_tables(book.values.data(), q.data(), codes.positions, tables.data());
  kernels.add_codes(codes.bytes.data(), codes.stride, codes.positions, codes.rows, tables.data(),
                    sums.data());
  return sums;
}

class RvqKernelsTest : public KernelVariantTest {
 protected:
  static const RvqKernels& kernels() { return RvqKernelsOf(Target(), Arithmetic()); }
};

TEST_P(RvqKernelsTest, SumsAreThoseOfTheDefinition) {
  uint32_t seed = 0;
  for (const int64_t positions : {1, 2, 16, 63, 64, 65, 130}) {
    for (const int64_t rows : {1, 7, 8, 31, 32, 33, 63, 64, 65, 128, 200}) {
      for (const int64_t gap : {0, 5}) {
        const RvqCodebook book = RandomBook(++seed);
        const std::vector<int32_t> q = RandomActivations(positions, Planes(), ++seed);
        const Codes codes(positions, rows, gap, ++seed);
        std::vector<int64_t> before(static_cast<size_t>(rows));
        for (size_t r = 0; r < before.size(); ++r) {
          before[r] = static_cast<int64_t>(r) * -1'000'000'007;
        }
        ASSERT_EQ(Computed(kernels(), book, q, codes, before),
                  Expected(book, q, codes, Arithmetic(), before))
            << positions << " positions, " << rows << " rows, gap " << gap;
      }
    }
  }
}

// All products as large as they can be, of either sign: no sum on the way is too small for them.
TEST_P(RvqKernelsTest, TheLargestAndTheSmallestSumsAreExact) {
  constexpr int64_t kPositions = 7168 / kSubVectorSize;
  const Codes codes(kPositions, 70, 0, 1);
  for (const int8_t weight : {int8_t{127}, int8_t{-128}}) {
    for (const int32_t activation : {ActivationMax(Planes()), -ActivationMax(Planes())}) {
      RvqCodebook book;
      book.values.fill(weight);
      const std::vector<int32_t> q(kPositions * kSubVectorSize, activation);
      const std::vector<int64_t> before(70, 3);
      EXPECT_EQ(Computed(kernels(), book, q, codes, before),
                Expected(book, q, codes, Arithmetic(), before));
    }
  }
}

TEST_P(RvqKernelsTest, ActivationsOfZeroGiveNothing) {
  const Codes codes(9, 40, 0, 1);
  const std::vector<int32_t> q(9 * kSubVectorSize, 0);
  EXPECT_THAT(Computed(kernels(), RandomBook(2), q, codes, std::vector<int64_t>(40, -5)),
              ::testing::Each(-5));
}

INSTANTIATE_TEST_SUITE_P(All, RvqKernelsTest, AllKernelVariants(), KernelVariantName);

TEST(KernelTargetTest, NamesAreReadBack) {
  for (const KernelTarget target : SupportedKernelTargets()) {
    EXPECT_EQ(ParseKernelTarget(KernelTargetName(target)), target);
  }
  EXPECT_EQ(ParseKernelTarget("neon512"), std::nullopt);
  EXPECT_EQ(SupportedKernelTargets().front(), KernelTarget::kScalar);
  EXPECT_EQ(SupportedKernelTargets().back(), BestKernelTarget());
}

}  // namespace
}  // namespace shoal
