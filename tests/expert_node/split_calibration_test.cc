#include "expert_node/split_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "coordinator/convert/converter.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/expert_batch.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::kWhole;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kLong = absl::Hours(1);
const std::vector<ExpertSplit> kAll = {ExpertSplit::kRows, ExpertSplit::kUnits,
                                       ExpertSplit::kRowsTogether};

// A call of so many rows takes `fixed` + num_rows * `per_row`.
struct Cost {
  absl::Duration fixed;
  absl::Duration per_row;
};
TimeCall CallsCosting(const Cost& rows, const Cost& units, const Cost& together) {
  return [=](ExpertSplit split, int64_t num_rows) -> absl::StatusOr<absl::Duration> {
    const Cost& cost = split == ExpertSplit::kRows    ? rows
                       : split == ExpertSplit::kUnits ? units
                                                      : together;
    return cost.fixed + num_rows * cost.per_row;
  };
}

TEST(PickSplitsTest, TakesTheFastestForEachNumberOfRows) {
  // In microseconds for 1, 2, 4, 8, 16, 32 rows: rows 10 20 40 80 160 320, units 15 25 45 ...,
  // together 26 27 29 33 41 57.
  const auto time_call = CallsCosting({absl::ZeroDuration(), absl::Microseconds(10)},
                                      {absl::Microseconds(5), absl::Microseconds(10)},
                                      {absl::Microseconds(25), absl::Microseconds(1)});
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const ExpertSplits splits,
      PickSplits(kAll, ExpertSplits::Always(ExpertSplit::kUnits), kLong, time_call));
  EXPECT_EQ(splits.ToString(), "rows for few rows, rows-together from 4");
}

TEST(PickSplitsTest, KeepsTheUsualWhereNothingIsClearlyFaster) {
  const auto time_call = CallsCosting({absl::Microseconds(96), absl::ZeroDuration()},
                                      {absl::Microseconds(100), absl::ZeroDuration()},
                                      {absl::Microseconds(100), absl::ZeroDuration()});
  const ExpertSplits usual = ExpertSplits::Always(ExpertSplit::kUnits);
  SHOAL_ASSERT_OK_AND_ASSIGN(const ExpertSplits splits, PickSplits(kAll, usual, kLong, time_call));
  EXPECT_EQ(splits, usual);
}

TEST(PickSplitsTest, OneSlowCallOfFiveDoesNotCount) {
  int calls = 0;
  const TimeCall time_call = [&calls](ExpertSplit split,
                                      int64_t) -> absl::StatusOr<absl::Duration> {
    ++calls;
    return calls % 5 == 0 ? absl::Seconds(1)
                          : absl::Microseconds(split == ExpertSplit::kRows ? 10 : 20);
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const ExpertSplits splits,
      PickSplits(kAll, ExpertSplits::Always(ExpertSplit::kUnits), kLong, time_call));
  EXPECT_EQ(splits, ExpertSplits::Always(ExpertSplit::kRows));
}

TEST(PickSplitsTest, LeavesTheRestAsUsualWhenTheTimeIsUp) {
  absl::Duration spent;
  const TimeCall time_call = [&spent](ExpertSplit split,
                                      int64_t num_rows) -> absl::StatusOr<absl::Duration> {
    const absl::Duration time = num_rows * absl::Milliseconds(split == ExpertSplit::kRows ? 1 : 2);
    spent += time;
    return time;
  };
  SHOAL_ASSERT_OK_AND_ASSIGN(const ExpertSplits splits,
                             PickSplits(kAll, ExpertSplits::Always(ExpertSplit::kUnits),
                                        absl::Milliseconds(200), time_call));
  // 25 ms for one row, 50 for two, 100 for four.
  EXPECT_EQ(splits.ToString(), "rows for few rows, units from 8");
  EXPECT_LE(spent, absl::Milliseconds(200));
}

TEST(PickSplitsTest, HandsOnAnError) {
  const TimeCall time_call = [](ExpertSplit, int64_t) -> absl::StatusOr<absl::Duration> {
    return absl::ResourceExhaustedError("no memory");
  };
  EXPECT_THAT(PickSplits(kAll, ExpertSplits::Always(ExpertSplit::kRows), kLong, time_call),
              StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
}

class CalibrateSplitsTest : public ::testing::TestWithParam<ExpertCodec> {
 protected:
  void SetUp() override {
    SmallCheckpoint().WriteTo(dir_ / "checkpoint");
    ConvertOptions options;
    options.experts = GetParam();
    SHOAL_ASSERT_OK(Convert(dir_ / "checkpoint", dir_ / "model", options, nullptr, {}));
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto container, Container::Open(dir_ / "model"));
    SHOAL_ASSERT_OK_AND_ASSIGN(model_, ExpertModel::FromContainer(*container));
  }
  absl::StatusOr<CalibratedSplits> Calibrate(const ExpertSlice& slice = kWhole) {
    return CalibrateSplits({model_, slice, BestKernelTarget(), ExpertArithmetic::kExact}, store_,
                           pool_, Clock::Real());
  }
  // The only file that is kept.
  std::string Kept() {
    std::string path;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / "profile")) {
      path = entry.path();
    }
    return path;
  }

  TempDir dir_;
  ExpertModel model_;
  ThreadPool pool_{2};
  const ProfileStore store_{dir_ / "profile"};
};

INSTANTIATE_TEST_SUITE_P(Codecs, CalibrateSplitsTest,
                         ::testing::Values(ExpertCodec::kRvq3, ExpertCodec::kTcq3,
                                           ExpertCodec::kF32),
                         [](const auto& info) { return std::string(ExpertCodecName(info.param)); });

TEST_P(CalibrateSplitsTest, MeasuresOnceAndKeepsIt) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const CalibratedSplits measured, Calibrate());
  EXPECT_EQ(measured.origin, "measured");
  for (const int64_t rows : {1, 5, 500}) {
    EXPECT_THAT(PossibleSplits(model_.layout), Contains(measured.splits.For(rows)));
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const CalibratedSplits kept, Calibrate());
  EXPECT_EQ(kept.origin, "kept in " + Kept());
  EXPECT_EQ(kept.splits, measured.splits);
}

TEST_P(CalibrateSplitsTest, WhatIsKeptHoldsForTheSameSliceAlone) {
  SHOAL_ASSERT_OK(Calibrate());
  SHOAL_ASSERT_OK_AND_ASSIGN(const CalibratedSplits other, Calibrate({{0, 1}, {0, 14}}));
  EXPECT_EQ(other.origin, "measured");
  SHOAL_ASSERT_OK_AND_ASSIGN(const CalibratedSplits narrow, Calibrate({{0, 3}, {13, 14}}));
  EXPECT_EQ(narrow.origin, "measured");
}

TEST_P(CalibrateSplitsTest, ADamagedFileIsMeasuredAnewAndReplaced) {
  SHOAL_ASSERT_OK(Calibrate());
  SHOAL_ASSERT_OK_AND_ASSIGN(const std::string text, ReadTextFile(Kept(), 1 << 20));
  Json json = Json::parse(text);
  json["measured"]["splits"][0]["split"] = "columns";
  SHOAL_ASSERT_OK(WriteFileAtomically(Kept(), json.dump()));
  SHOAL_ASSERT_OK_AND_ASSIGN(const CalibratedSplits anew, Calibrate());
  EXPECT_THAT(anew.origin, StartsWith("measured; " + Kept()));
  EXPECT_THAT(anew.origin, HasSubstr("splits[0]: split is none of the splits"));
  SHOAL_ASSERT_OK_AND_ASSIGN(const CalibratedSplits kept, Calibrate());
  EXPECT_THAT(kept.origin, StartsWith("kept in "));
}

TEST_P(CalibrateSplitsTest, WhereNothingCanBeKeptItIsMeasuredAndSaid) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const CalibratedSplits splits,
      CalibrateSplits({model_, kWhole, BestKernelTarget(), ExpertArithmetic::kFast},
                      ProfileStore("/proc/shoal"), pool_, Clock::Real()));
  EXPECT_THAT(splits.origin, HasSubstr("not kept: create /proc/shoal"));
}

}  // namespace
}  // namespace shoal
