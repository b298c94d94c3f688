#include "kernels/rvq_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/activation_quant.h"
#include "kernels/kernel_target.h"

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

std::vector<int32_t> RandomActivations(int64_t positions, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> any(-kActivationMax, kActivationMax);
  std::vector<int32_t> q(static_cast<size_t>(positions * kSubVectorSize));
  std::generate(q.begin(), q.end(), [&] { return any(random); });
  return q;
}

// By the definition: every weight of every row times its activation.
std::vector<int64_t> Expected(const RvqCodebook& book, const std::vector<int32_t>& q,
                              const Codes& codes, std::vector<int64_t> sums) {
  for (int64_t p = 0; p < codes.positions; ++p) {
    for (int64_t r = 0; r < codes.rows; ++r) {
      const uint32_t code = codes.CodeOf(p, r);
      for (int stage = 0; stage < kRvqStages; ++stage) {
        const int8_t* entry = book.entry(stage, RvqIndex(code, stage));
        for (int d = 0; d < kSubVectorSize; ++d) {
          sums[static_cast<size_t>(r)] +=
              int64_t{entry[d]} * q[static_cast<size_t>(p * kSubVectorSize + d)];
        }
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

class RvqKernelsTest : public ::testing::TestWithParam<KernelTarget> {
 protected:
  const RvqKernels& kernels() const { return RvqKernelsOf(GetParam()); }
};

TEST_P(RvqKernelsTest, SumsAreThoseOfTheDefinition) {
  uint32_t seed = 0;
  for (const int64_t positions : {1, 2, 16, 63, 64, 65, 130}) {
    for (const int64_t rows : {1, 7, 8, 31, 32, 33, 63, 64, 65, 128, 200}) {
      for (const int64_t gap : {0, 5}) {
        const RvqCodebook book = RandomBook(++seed);
        const std::vector<int32_t> q = RandomActivations(positions, ++seed);
        const Codes codes(positions, rows, gap, ++seed);
        std::vector<int64_t> before(static_cast<size_t>(rows));
        for (size_t r = 0; r < before.size(); ++r) {
          before[r] = static_cast<int64_t>(r) * -1'000'000'007;
        }
        ASSERT_EQ(Computed(kernels(), book, q, codes, before), Expected(book, q, codes, before))
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
    for (const int32_t activation : {kActivationMax, -kActivationMax}) {
      RvqCodebook book;
      book.values.fill(weight);
      const std::vector<int32_t> q(kPositions * kSubVectorSize, activation);
      const std::vector<int64_t> sums =
          Computed(kernels(), book, q, codes, std::vector<int64_t>(70, 3));
      EXPECT_THAT(sums, ::testing::Each(3 + int64_t{kPositions} * kSubVectorSize * kRvqStages *
                                                weight * activation));
    }
  }
}

TEST_P(RvqKernelsTest, ActivationsOfZeroGiveNothing) {
  const Codes codes(9, 40, 0, 1);
  const std::vector<int32_t> q(9 * kSubVectorSize, 0);
  EXPECT_THAT(Computed(kernels(), RandomBook(2), q, codes, std::vector<int64_t>(40, -5)),
              ::testing::Each(-5));
}

INSTANTIATE_TEST_SUITE_P(All, RvqKernelsTest,
                         ::testing::ValuesIn(SupportedKernelTargets().begin(),
                                             SupportedKernelTargets().end()),
                         [](const auto& info) {
                           return std::string(KernelTargetName(info.param));
                         });

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
