#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "common/container/container.h"
#include "common/container/verify.h"
#include "common/io/file.h"
#include "common/model/tensor_names.h"
#include "coordinator/convert/converter.h"
#include "kernels/math.h"
#include "kernels/split_mix.h"
#include "kernels/tcq.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

namespace fs = std::filesystem;
using ::shoal::testing::DifferentFiles;
using ::shoal::testing::ReadTree;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Tensors = std::map<std::string, std::vector<float>>;

constexpr int64_t kHidden = 36;
constexpr int64_t kIntermediate = 20;
constexpr int64_t kExperts = 14;

Tensors ReadAll(const std::string& directory) {
  Tensors tensors;
  const auto checkpoint = Checkpoint::Open(directory);
  EXPECT_THAT(checkpoint, ::shoal::testing::IsOk());
  for (const auto& [name, info] : (*checkpoint)->tensors()) {
    std::vector<float>& values = tensors[name];
    values.resize(info.num_elements());
    EXPECT_THAT((*checkpoint)->ReadFloat(name, info, values), ::shoal::testing::IsOk());
  }
  return tensors;
}

class DequantizeTest : public ::testing::Test {
 protected:
  void SetUp() override { SmallCheckpoint().WriteTo(dir_ / "source"); }

  ConvertReport Make(ExpertCodec experts, TrunkType trunk) {
    ConvertOptions options;
    options.experts = experts;
    options.trunk = trunk;
    options.num_jobs = 2;
    const auto report = Convert(dir_ / "source", dir_ / "container", options, nullptr, {});
    EXPECT_THAT(report, ::shoal::testing::IsOk());
    return report.ok() ? *report : ConvertReport{};
  }
  absl::Status Run() { return Dequantize(dir_ / "container", dir_ / "out", nullptr, {}); }

  // ||a - b|| / ||a|| over the tensors whose name (does not) contain "experts.": routed experts.
  static double RelativeError(const Tensors& a, const Tensors& b, bool experts,
                              const std::string& part) {
    double error = 0;
    double weight = 0;
    for (const auto& [name, values] : a) {
      if ((name.find(".experts.") != std::string::npos) != experts ||
          name.find(part) == std::string::npos) {
        continue;
      }
      for (size_t i = 0; i < values.size(); ++i) {
        const double difference = double{values[i]} - double{b.at(name)[i]};
        error += difference * difference;
        weight += double{values[i]} * double{values[i]};
      }
    }
    return std::sqrt(error / weight);
  }

  TempDir dir_;
};

TEST_F(DequantizeTest, LosslessContainerGivesBackTheSourceToTheBit) {
  const ConvertReport report = Make(ExpertCodec::kF32, TrunkType::kF32);
  SHOAL_ASSERT_OK(Run());
  const Tensors source = ReadAll(dir_ / "source");
  const Tensors back = ReadAll(dir_ / "out");
  EXPECT_EQ(source, back);
  EXPECT_EQ(ReadTree(dir_ / "source").at("config.json"), ReadTree(dir_ / "out").at("config.json"));
  EXPECT_EQ(report.trunk_relative_error, 0);
  EXPECT_EQ(report.layers[0].relative_error, 0);
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto problems, VerifyContainer(dir_ / "container", nullptr));
  EXPECT_THAT(problems, IsEmpty());
}

TEST_F(DequantizeTest, ShapesAreThePublishedOnes) {
  Make(ExpertCodec::kF32, TrunkType::kF32);
  SHOAL_ASSERT_OK(Run());
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto source, Checkpoint::Open(dir_ / "source"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto back, Checkpoint::Open(dir_ / "out"));
  for (const auto& [name, info] : source->tensors()) {
    EXPECT_EQ(back->tensors().at(name).shape, info.shape) << name;
  }
}

class DequantizeCodedTest : public DequantizeTest,
                            public ::testing::WithParamInterface<ExpertCodec> {};
INSTANTIATE_TEST_SUITE_P(Codecs, DequantizeCodedTest,
                         ::testing::Values(ExpertCodec::kRvq3, ExpertCodec::kTcq3),
                         [](const auto& info) { return std::string(ExpertCodecName(info.param)); });

TEST_P(DequantizeCodedTest, ReportedErrorsAreThoseOfTheDequantizedWeights) {
  const ConvertReport report = Make(GetParam(), TrunkType::kQ4);
  SHOAL_ASSERT_OK(Run());
  const Tensors source = ReadAll(dir_ / "source");
  const Tensors back = ReadAll(dir_ / "out");
  ASSERT_EQ(report.layers.size(), 2);
  for (const ConvertLayerReport& layer : report.layers) {
    const double expected =
        RelativeError(source, back, true, absl::StrCat("layers.", layer.layer, "."));
    EXPECT_NEAR(layer.relative_error, expected, 1e-6 * expected);
    EXPECT_GT(expected, 0.01);
  }
  ASSERT_TRUE(report.trunk_relative_error);
  const double expected = RelativeError(source, back, false, "");
  EXPECT_NEAR(*report.trunk_relative_error, expected, 1e-6 * expected);
  EXPECT_GT(expected, 0.01);
}

// The weights of a bank by the letter of common/container/unit_layout.h and kernels/rvq.h, for the
// sizes of SmallCheckpoint: 3 units of 8, 5 positions of gate and up, 1 of down.
class BankByHand {
 public:
  BankByHand(std::string bank, std::string books, int64_t layer_index)
      : bank_(std::move(bank)), books_(books.substr(layer_index * 3 * 2048, 3 * 2048)) {}

  // Weight [row, col] of the expert's gate (0), up (1) or down (2).
  float Weight(int64_t expert, int matrix, int64_t row, int64_t col) const {
    const int64_t unit = (matrix == 2 ? col : row) / kWidth;
    const char* base = bank_.data() + expert * kRecordBytes + unit * kUnitBytes;
    const int64_t local_row = matrix == 2 ? row : row % kWidth;
    const int64_t local_col = matrix == 2 ? col % kWidth : col;
    const int64_t rows = matrix == 2 ? kHidden : kWidth;
    const char* scales = base + 32 + 2 * kWidth * matrix;
    const char* planes =
        matrix == 2 ? base + kDownOffset + local_col / 8 * 3 * kHidden
                    : base + kGateUpOffset + local_col / 8 * 6 * kWidth + 3 * kWidth * matrix;
    uint32_t code = 0;
    for (int plane = 0; plane < 3; ++plane) {
      code |= static_cast<uint32_t>(static_cast<uint8_t>(planes[plane * rows + local_row]))
              << (8 * plane);
    }
    int sum = 0;
    for (int stage = 0; stage < 4; ++stage) {
      const int64_t entry = code >> (6 * stage) & 63;
      sum += static_cast<int8_t>(books_[matrix * 2048 + (stage * 64 + entry) * 8 + local_col % 8]);
    }
    uint16_t scale = 0;
    std::memcpy(&scale, scales + 2 * local_row, 2);
    return HalfToFloat(scale) * static_cast<float>(sum);
  }

  static constexpr int64_t kWidth = 8;
  // header 32, scales 2 * (8 + 8 + 36) = 104, to 192; gate_up 5 * 6 * 8 = 240, down 3 * 36 = 108.
  static constexpr int64_t kGateUpOffset = 192;
  static constexpr int64_t kDownOffset = kGateUpOffset + 240;
  static constexpr int64_t kUnitBytes = 576;
  static constexpr int64_t kRecordBytes = 4096;

 private:
  std::string bank_;
  std::string books_;
};

TEST_F(DequantizeTest, Rvq3WeightsAreThoseOfTheBankDecodedByHand) {
  Make(ExpertCodec::kRvq3, TrunkType::kQ8);
  SHOAL_ASSERT_OK(Run());
  const Tensors back = ReadAll(dir_ / "out");
  const auto files = ReadTree(dir_ / "container");
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(dir_ / "container"));
  ASSERT_EQ(container->manifest().unit_layout.unit_bytes, BankByHand::kUnitBytes);
  ASSERT_EQ(container->manifest().unit_layout.down_offset, BankByHand::kDownOffset);
  for (int64_t index = 0; index < 2; ++index) {
    const int64_t layer = index + 1;
    const BankByHand bank(files.at(BankFile(layer)), files.at("codebooks.bin"), index);
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const ExpertTensorNames names = ExpertTensors(container->config(), layer, expert);
      int wrong = 0;
      for (int64_t i = 0; i < kIntermediate; ++i) {
        for (int64_t h = 0; h < kHidden; ++h) {
          wrong += back.at(names.gate)[i * kHidden + h] != bank.Weight(expert, 0, i, h);
          wrong += back.at(names.up)[i * kHidden + h] != bank.Weight(expert, 1, i, h);
          wrong += back.at(names.down)[h * kIntermediate + i] != bank.Weight(expert, 2, h, i);
        }
      }
      EXPECT_EQ(wrong, 0) << "layer " << layer << " expert " << expert;
    }
  }
}

// The same for tcq3 by the letter of kernels/tcq.h and input_rotation.h: 16 rows of gate and up in two bundles of
// four groups, which are rotated in blocks of 4 columns (36 is 9 times 4), and 36 rows of down in a bundle of
// one, rotated in blocks of 8.
class TrellisBankByHand {
 public:
  explicit TrellisBankByHand(std::string bank) : bank_(std::move(bank)) {}

  double Weight(int64_t expert, int matrix, int64_t row, int64_t col) const {
    const int64_t unit = (matrix == 2 ? col : row) / 8;
    const char* base = bank_.data() + expert * 4096 + unit * 704;
    const int64_t local_row = matrix == 2 ? row : row % 8 + 8 * matrix;
    const int64_t local_col = matrix == 2 ? col % 8 : col;
    const int64_t block = matrix == 2 ? 8 : 4;
    double sum = 0;
    for (int64_t i = 0; i < block; ++i) {
      const int64_t rotated = local_col / block * block + i;
      const bool negative = __builtin_popcountll(static_cast<uint64_t>(i & local_col)) % 2 != 0;
      const int value = matrix == 2 ? Value(base + 576, 36, 1, local_row, rotated)
                                    : Value(base + 192, 16, 4, local_row, rotated);
      sum += negative ? -value : value;
    }
    uint16_t scale = 0;
    std::memcpy(&scale, base + 32 + 2 * (matrix == 2 ? 16 + local_row : local_row), 2);
    const uint64_t seed = SplitMix64(0, matrix == 2 ? 1 : 0);
    const double sign = (SplitMix64(seed, static_cast<uint64_t>(local_col)) & 1) != 0 ? -1 : 1;
    return sign * sum / std::sqrt(static_cast<double>(block)) * double{HalfToFloat(scale)};
  }

 private:
  // The value of one column of a matrix of `rows`, stored in bundles of `side` groups.
  static int Value(const char* codes, int64_t rows, int64_t side, int64_t row, int64_t col) {
    const int64_t group = col / 8;
    // The 24 bits of every row so far, behind the byte that a chain begins with; only the last ones count.
    uint64_t bits = kTcqStart;
    int64_t length = 8;
    for (int64_t r = std::max<int64_t>(0, row - 1); r <= row; ++r) {
      for (int64_t plane = 0; plane < 3; ++plane) {
        const char* byte = codes + ((group / side * 3 + plane) * rows + r) * side + group % side;
        bits |= uint64_t{static_cast<uint8_t>(*byte)} << length;
        length += 8;
      }
    }
    const uint32_t window = bits >> (length - 24 + 3 * (col % 8) - 5) & 255;
    return kTcqLow[window & 15] + kTcqHigh[window >> 4] - 64;
  }

  std::string bank_;
};

TEST_F(DequantizeTest, Tcq3WeightsAreThoseOfTheBankDecodedByHand) {
  Make(ExpertCodec::kTcq3, TrunkType::kQ8);
  SHOAL_ASSERT_OK(Run());
  const Tensors back = ReadAll(dir_ / "out");
  const auto files = ReadTree(dir_ / "container");
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(dir_ / "container"));
  ASSERT_EQ(container->manifest().unit_layout.unit_bytes, 704);
  ASSERT_EQ(container->manifest().unit_layout.gate_up_offset, 192);
  ASSERT_EQ(container->manifest().unit_layout.down_offset, 576);
  double worst = 0;
  for (const int64_t layer : {1, 2}) {
    const TrellisBankByHand bank(files.at(BankFile(layer)));
    for (int64_t expert = 0; expert < kExperts; ++expert) {
      const ExpertTensorNames names = ExpertTensors(container->config(), layer, expert);
      const auto compare = [&](float actual, double expected) {
        worst = std::max(
            worst, std::fabs(double{actual} - expected) / std::max(std::fabs(expected), 1e-3));
      };
      for (int64_t i = 0; i < kIntermediate; ++i) {
        for (int64_t h = 0; h < kHidden; ++h) {
          compare(back.at(names.gate)[i * kHidden + h], bank.Weight(expert, 0, i, h));
          compare(back.at(names.up)[i * kHidden + h], bank.Weight(expert, 1, i, h));
          compare(back.at(names.down)[h * kIntermediate + i], bank.Weight(expert, 2, h, i));
        }
      }
    }
  }
  // Rounding to float32, and nothing else.
  EXPECT_LE(worst, 0x1p-24);
}

TEST_F(DequantizeTest, TrunkTypesLoseNoMoreThanTheirNumberFormatsAllow) {
  // The worst a value may lose, over the largest magnitude of its tensor: half a step of 1/127
  // (q8), a step of 1/7 (q4, whose scale may clip), half a unit in the last place of 8 bits (bf16:
  // 2^-8 of the power of two below).
  const std::map<TrunkType, double> bounds = {
      {TrunkType::kQ8, 0.51 / 127}, {TrunkType::kQ4, 1.0 / 7}, {TrunkType::kBF16, 1.0 / 256}};
  const Tensors source = ReadAll(dir_ / "source");
  for (const auto& [type, bound] : bounds) {
    Make(ExpertCodec::kF32, type);
    SHOAL_ASSERT_OK(Run());
    const Tensors back = ReadAll(dir_ / "out");
    for (const char* name :
         {"model.embed_tokens.weight", "lm_head.weight",
          "model.layers.1.self_attn.kv_b_proj.weight", "model.layers.0.mlp.down_proj.weight"}) {
      double largest = 0;
      double worst = 0;
      for (size_t i = 0; i < source.at(name).size(); ++i) {
        largest = std::max(largest, std::fabs(double{source.at(name)[i]}));
        worst = std::max(worst, std::fabs(double{source.at(name)[i]} - double{back.at(name)[i]}));
      }
      EXPECT_LE(worst, bound * largest) << name << " " << TrunkTypeName(type);
      EXPECT_GT(worst, 0) << name << " " << TrunkTypeName(type);
    }
    for (const char* name : {"model.norm.weight", "model.layers.1.block_sparse_moe.gate.weight"}) {
      EXPECT_EQ(back.at(name), source.at(name)) << name;
    }
    fs::remove_all(dir_ / "container");
    fs::remove_all(dir_ / "out");
  }
}

TEST_F(DequantizeTest, DequantizedCheckpointConvertsAgain) {
  Make(ExpertCodec::kRvq3, TrunkType::kQ8);
  SHOAL_ASSERT_OK(Run());
  ConvertOptions options;
  options.experts = ExpertCodec::kF32;
  options.trunk = TrunkType::kF32;
  SHOAL_ASSERT_OK(Convert(dir_ / "out", dir_ / "again", options, nullptr, {}));
}

TEST_F(DequantizeTest, RefusesADirectoryThatExists) {
  Make(ExpertCodec::kF32, TrunkType::kF32);
  fs::create_directory(dir_ / "out");
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("out")));
}

TEST_F(DequantizeTest, LeavesNothingWhenStopped) {
  Make(ExpertCodec::kF32, TrunkType::kF32);
  std::stop_source stop;
  EXPECT_THAT(Dequantize(
                  dir_ / "container", dir_ / "out",
                  [&](const ConvertProgress& progress) {
                    EXPECT_GT(progress.source_bytes_total, progress.source_bytes_done);
                    stop.request_stop();
                  },
                  stop.get_token()),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("stopped")));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  EXPECT_FALSE(fs::exists(dir_ / "out.dequantizing"));
}

TEST_F(DequantizeTest, StartsAgainOverWhatAKilledRunLeft) {
  Make(ExpertCodec::kF32, TrunkType::kF32);
  fs::create_directory(dir_ / "out.dequantizing");
  SHOAL_ASSERT_OK(WriteFileAtomically(dir_ / "out.dequantizing/config.json", "stale"));
  SHOAL_ASSERT_OK(Run());
  EXPECT_EQ(ReadAll(dir_ / "out"), ReadAll(dir_ / "source"));
  fs::remove_all(dir_ / "out");
  fs::create_directory(dir_ / "out.dequantizing");
  SHOAL_ASSERT_OK(WriteFileAtomically(dir_ / "out.dequantizing/notes.txt", "mine"));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("notes.txt")));
  EXPECT_TRUE(fs::exists(dir_ / "out.dequantizing/notes.txt"));
}

TEST_F(DequantizeTest, DamagedUnitIsNamedAndNothingAppears) {
  Make(ExpertCodec::kRvq3, TrunkType::kQ8);
  const std::string path = (dir_ / "container/") + BankFile(2);
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string bank, ReadTextFile(path, 1 << 30));
  bank[3 * BankByHand::kRecordBytes + BankByHand::kUnitBytes + 100] ^= 1;
  SHOAL_ASSERT_OK(WriteFileAtomically(path, bank));
  EXPECT_THAT(Run(),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(BankFile(2)), HasSubstr("expert 3"), HasSubstr("unit 1"))));
  EXPECT_FALSE(fs::exists(dir_ / "out"));
  EXPECT_FALSE(fs::exists(dir_ / "out.dequantizing"));
}

TEST_F(DequantizeTest, DamagedTrunkTensorIsNamed) {
  Make(ExpertCodec::kRvq3, TrunkType::kQ8);
  SHOAL_ASSERT_OK_AND_ASSIGN(std::string trunk,
                             ReadTextFile(dir_ / "container/trunk.bin", 1 << 30));
  trunk[10] ^= 1;
  SHOAL_ASSERT_OK(WriteFileAtomically(dir_ / "container/trunk.bin", trunk));
  EXPECT_THAT(Run(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("model.embed_tokens.weight")));
}

}  // namespace
}  // namespace shoal
