#include "expert_node/expert_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/io/json_fields.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

UnitLayout Layout(ExpertCodec codec) { return *UnitLayout::Make(codec, 64, 64); }

TEST(ExpertSplitTest, RowsGoTogetherWhereTheCodecCan) {
  EXPECT_THAT(PossibleSplits(Layout(ExpertCodec::kTcq3)),
              ElementsAre(ExpertSplit::kRows, ExpertSplit::kUnits, ExpertSplit::kRowsTogether));
  EXPECT_THAT(PossibleSplits(Layout(ExpertCodec::kF32)),
              ElementsAre(ExpertSplit::kRows, ExpertSplit::kUnits));
}

TEST(ExpertSplitsTest, HoldFromANumberOfRowsToTheNext) {
  ExpertSplits splits = ExpertSplits::Always(ExpertSplit::kUnits);
  splits.Add(4, ExpertSplit::kRows);
  splits.Add(8, ExpertSplit::kRows);
  splits.Add(16, ExpertSplit::kRowsTogether);
  EXPECT_EQ(splits.For(1), ExpertSplit::kUnits);
  EXPECT_EQ(splits.For(3), ExpertSplit::kUnits);
  EXPECT_EQ(splits.For(4), ExpertSplit::kRows);
  EXPECT_EQ(splits.For(15), ExpertSplit::kRows);
  EXPECT_EQ(splits.For(1000), ExpertSplit::kRowsTogether);
  EXPECT_EQ(splits.ToString(), "units for few rows, rows from 4, rows-together from 16");
}

TEST(ExpertSplitsTest, UsualAreUnitsUntilEveryThreadHasARow) {
  const ExpertSplits usual = ExpertSplits::Usual(Layout(ExpertCodec::kF32), 4);
  EXPECT_EQ(usual.For(3), ExpertSplit::kUnits);
  EXPECT_EQ(usual.For(4), ExpertSplit::kRows);
  EXPECT_EQ(ExpertSplits::Usual(Layout(ExpertCodec::kF32), 1),
            ExpertSplits::Always(ExpertSplit::kRows));
  EXPECT_EQ(ExpertSplits::Usual(Layout(ExpertCodec::kTcq3), 4).ToString(),
            "units for 1 row, rows-together from 2");
}

TEST(ExpertSplitsTest, ComeBackFromJson) {
  const UnitLayout layout = Layout(ExpertCodec::kTcq3);
  const ExpertSplits usual = ExpertSplits::Usual(layout, 4);
  SHOAL_ASSERT_OK_AND_ASSIGN(const ExpertSplits back,
                             ExpertSplits::FromJson(usual.ToJson(), layout, "a"));
  EXPECT_EQ(back, usual);
}

TEST(ExpertSplitsTest, OtherJsonIsRefusedByField) {
  const UnitLayout layout = Layout(ExpertCodec::kF32);
  const auto refused = [&layout](const char* text, const char* field) {
    EXPECT_THAT(ExpertSplits::FromJson(Json::parse(text), layout, "a.json"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field)))
        << text;
  };
  refused("{}", "splits is not an array");
  refused("[]", "splits is not an array");
  refused("[7]", "splits[0]: rows is missing");
  refused(R"([{"rows": 2, "split": "rows"}])", "rows is 2");
  refused(R"([{"rows": 1, "split": "columns"}])", "split is none of the splits");
  refused(R"([{"rows": 1, "split": "rows-together"}])", "split is none of the splits");
  refused(R"([{"rows": 1, "split": "rows"}, {"rows": 1, "split": "units"}])", "splits[1]: rows");
  refused(R"([{"rows": 1, "split": "rows", "x": 1}])", "\"x\" is no field");
}

}  // namespace
}  // namespace shoal
