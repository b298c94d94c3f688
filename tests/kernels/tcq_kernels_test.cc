#include "kernels/tcq_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/expert_arithmetic.h"
#include "tests/kernels/kernel_variant.h"

namespace shoal {
namespace {

// Nothing behind the last byte: to read on is an error that sanitizers see.
std::vector<uint8_t> RandomCodes(const TcqShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> codes(static_cast<size_t>(shape.bytes()));
  std::generate(codes.begin(), codes.end(), [&] { return static_cast<uint8_t>(random()); });
  return codes;
}

// One activation for every column, and cut into the words of the kernels.
struct Activations {
  Activations(const TcqShape& shape, int planes, const std::vector<int32_t>& values) : q(values) {
    words.resize(static_cast<size_t>(shape.bundles * 8 * planes));
    for (int64_t column = 0; column < shape.padded_columns(); ++column) {
      const int64_t group = column / 8;
      // Digits from -64 to 63 to the base of 128.
      int32_t rest = q[static_cast<size_t>(column)];
      for (int64_t plane = 0; plane < planes; ++plane) {
        int32_t digit = rest % 128;
        digit += digit < -64 ? 128 : digit > 63 ? -128 : 0;
        const int64_t word = group / shape.bundle_groups * 8 * planes + plane * 8 + column % 8;
        words[static_cast<size_t>(word)] |= static_cast<int32_t>(
            uint32_t{static_cast<uint8_t>(digit)} << 8 * (group % shape.bundle_groups));
        rest = (rest - digit) / 128;
      }
      EXPECT_EQ(rest, 0);
    }
  }
  std::vector<int32_t> q;
  std::vector<int32_t> words;
};

std::vector<int32_t> RandomActivations(const TcqShape& shape, int planes, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> any(-ActivationMax(planes), ActivationMax(planes));
  std::vector<int32_t> q(static_cast<size_t>(shape.padded_columns()));
  std::generate(q.begin(), q.end(), [&] { return any(random); });
  return q;
}

// By the definition: the stream of a group's bits, and a window that moves along it.
std::vector<int64_t> Expected(const TcqShape& shape, const std::vector<uint8_t>& codes,
                              const std::vector<int32_t>& q, std::vector<int64_t> sums) {
  const int64_t groups = shape.bundles * shape.bundle_groups;
  for (int64_t group = 0; group < groups; ++group) {
    uint32_t window = kTcqStart;
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t t = 0; t < 8; ++t) {
        for (int64_t bit = 3 * t; bit < 3 * t + 3; ++bit) {
          const int64_t at = group / shape.bundle_groups * 3 * shape.rows * shape.bundle_groups +
                             bit / 8 * shape.rows * shape.bundle_groups +
                             row * shape.bundle_groups + group % shape.bundle_groups;
          const uint32_t value = codes[static_cast<size_t>(at)] >> bit % 8 & 1;
          window = window >> 1 | value << 7;
        }
        sums[static_cast<size_t>(row)] += int64_t{q[static_cast<size_t>(8 * group + t)]} *
                                          (kTcqLow[window % 16] + kTcqHigh[window / 16]);
      }
    }
  }
  return sums;
}

class TcqKernelsTest : public KernelVariantTest {
 protected:
  static const TcqKernels& Kernels() { return TcqKernelsOf(Target(), Arithmetic()); }
  static Activations Random(const TcqShape& shape, uint32_t seed) {
    return {shape, Planes(), RandomActivations(shape, Planes(), seed)};
  }
  std::vector<int64_t> Computed(const TcqShape& shape, const std::vector<uint8_t>& codes,
                                const Activations& activations, std::vector<int64_t> sums) const {
    Kernels().add_codes(shape, codes.data(), activations.words.data(), sums.data());
    return sums;
  }
};

TEST_P(TcqKernelsTest, SumsAreThoseOfTheDefinition) {
  uint32_t seed = 0;
  for (const int64_t columns : {1, 8, 9, 16, 17, 32, 40, 64, 100, 128, 520}) {
    for (const int64_t rows : {1, 2, 7, 8, 9, 15, 16, 17, 64, 200, 256, 257, 300}) {
      const TcqShape shape = TcqShapeOf(rows, columns);
      const std::vector<uint8_t> codes = RandomCodes(shape, ++seed);
      const Activations activations = Random(shape, ++seed);
      std::vector<int64_t> before(static_cast<size_t>(rows));
      for (size_t r = 0; r < before.size(); ++r) {
        before[r] = static_cast<int64_t>(r) * -1'000'000'007;
      }
      ASSERT_EQ(Computed(shape, codes, activations, before),
                Expected(shape, codes, activations.q, before))
          << rows << " rows, " << columns << " columns";
    }
  }
}

// More rows than sums are kept of at a time.
TEST_P(TcqKernelsTest, MatricesOfManyRowsAreGoneThroughInBlocks) {
  for (const int64_t columns : {8, 16, 32}) {
    for (const int64_t rows : {4095, 4096, 4097, 4112, 7168}) {
      const TcqShape shape = TcqShapeOf(rows, columns);
      const std::vector<uint8_t> codes = RandomCodes(shape, 1);
      const Activations activations = Random(shape, 2);
      const std::vector<int64_t> before(static_cast<size_t>(rows), 3);
      ASSERT_EQ(Computed(shape, codes, activations, before),
                Expected(shape, codes, activations.q, before))
          << rows << " rows, " << columns << " columns";
    }
  }
}

// All products as large as they can be, of either sign, over more columns than 32 bits can sum: no sum on
// the way is too small for them. Windows of zeros and of ones, and the one of the largest value.
TEST_P(TcqKernelsTest, TheLargestAndTheSmallestSumsAreExact) {
  const TcqShape shape = TcqShapeOf(3, int64_t{300'000});
  for (const uint8_t byte : {0x00, 0xff, 0xf2, 0x2f}) {
    const std::vector<uint8_t> codes(static_cast<size_t>(shape.bytes()), byte);
    for (const int32_t activation : {ActivationMax(Planes()), -ActivationMax(Planes())}) {
      const Activations activations(
          shape, Planes(),
          std::vector<int32_t>(static_cast<size_t>(shape.padded_columns()), activation));
      const std::vector<int64_t> before(3, 3);
      const std::vector<int64_t> expected = Expected(shape, codes, activations.q, before);
      EXPECT_EQ(Computed(shape, codes, activations, before), expected);
      const std::vector<const int32_t*> words(9, activations.words.data());
      std::vector<int64_t> sums(3 * words.size(), 3);
      Kernels().add_codes_to_rows(shape, codes.data(), 0, 3, words.data(), 9, sums.data());
      EXPECT_EQ(std::vector<int64_t>(sums.end() - 3, sums.end()), expected);
    }
  }
}

TEST_P(TcqKernelsTest, ActivationsOfZeroGiveNothing) {
  const TcqShape shape = TcqShapeOf(40, 96);
  const Activations activations(
      shape, Planes(), std::vector<int32_t>(static_cast<size_t>(shape.padded_columns()), 0));
  EXPECT_THAT(Computed(shape, RandomCodes(shape, 1), activations, std::vector<int64_t>(40, -5)),
              ::testing::Each(-5));
}

// Strips of a matrix that begin and end anywhere, with more and fewer rows of activations than go together.
TEST_P(TcqKernelsTest, ManyRowsOfActivationsGiveTheSumsOfEach) {
  constexpr size_t kRows = 21;
  uint32_t seed = 100;
  for (const int64_t columns : {8, 16, 100, 128, 2304}) {
    for (const int64_t rows : {1, 15, 16, 40, 77}) {
      const TcqShape shape = TcqShapeOf(rows, columns);
      const std::vector<uint8_t> codes = RandomCodes(shape, ++seed);
      std::vector<Activations> activations;
      std::vector<const int32_t*> words;
      std::vector<std::vector<int64_t>> expected;
      for (size_t a = 0; a < kRows; ++a) {
        activations.push_back(Random(shape, ++seed));
        words.push_back(activations[a].words.data());
        expected.push_back(Expected(shape, codes, activations[a].q,
                                    std::vector<int64_t>(static_cast<size_t>(rows), 7)));
      }
      for (const int64_t begin : {int64_t{0}, rows / 3, rows - 1}) {
        const int64_t end = begin == 0 ? rows : std::min(rows, begin + 17);
        for (const int64_t count : {1, 2, 3, 5, 8, 15, 21}) {
          std::vector<int64_t> sums(static_cast<size_t>(count * (end - begin)), 7);
          Kernels().add_codes_to_rows(shape, codes.data(), begin, end, words.data(), count,
                                      sums.data());
          std::vector<int64_t> wanted;
          for (size_t a = 0; a < static_cast<size_t>(count); ++a) {
            wanted.insert(wanted.end(), expected[a].begin() + begin, expected[a].begin() + end);
          }
          ASSERT_EQ(sums, wanted) << rows << " x " << columns << ", rows " << begin << " to " << end
                                  << ", " << count << " of activations";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, TcqKernelsTest, AllKernelVariants(), KernelVariantName);

}  // namespace
}  // namespace shoal
