#include "coordinator/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "coordinator/memory_plan.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Optional;

// A command with one flag of each kind.
class FlagSetTest : public ::testing::Test {
 protected:
  FlagSetTest() : flags_("shoal", "test", "Tests flags") {
    flags_.RequiredArgument("DIR", &directory_, "a directory");
    flags_.OptionalArgument("TEXT", &text_, "a text");
    flags_.Switch("-v,--verbose", &verbose_, "says more");
    flags_.Text("--file", "FILE", &file_, "a file");
    flags_.Heading("Numbers");
    flags_.Texts("--stop", "TEXT", &stops_, "stops");
    flags_.Integer("--ctx", &ctx_, {1, 100}, "a count");
    flags_.Integer("--top-k", &top_k_, {0}, "another count");
    flags_.Real("--top-p", &top_p_, "a number");
    flags_.ByteSize("--budget", &budget_, "a size");
    flags_.Choice("--trunk", {"q4", "q8"}, &trunk_, "a choice");
    flags_.Ids("--ids", &ids_, "ids");
  }

  absl::StatusOr<std::optional<std::string>> Parse(const std::vector<std::string>& args) {
    return flags_.Parse(args, "  shoal test DIR");
  }
  void ExpectUsageError(const std::vector<std::string>& args,
                        const ::testing::Matcher<const std::string&>& message) {
    const absl::Status status = Parse(args).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(message, HasSubstr("shoal test --help"))));
    EXPECT_EQ(ExitCodeOf(status), ExitCode::kUsage);
  }

  FlagSet flags_;
  std::string directory_;
  std::optional<std::string> text_;
  bool verbose_ = false;
  std::optional<std::string> file_;
  std::vector<std::string> stops_;
  std::optional<int64_t> ctx_;
  int64_t top_k_ = 40;
  double top_p_ = 1;
  std::optional<uint64_t> budget_;
  std::optional<std::string> trunk_;
  std::optional<std::vector<int32_t>> ids_;
};

TEST_F(FlagSetTest, ReadsEveryKindOfFlag) {
  ASSERT_THAT(Parse({"models/x", "-v", "a text", "--file", "f.txt", "--ctx=7", "--top-k", "0",
                     "--top-p", "0.5", "--budget", "2GiB", "--trunk", "q4", "--ids", "3,1 2"}),
              IsOk());
  EXPECT_EQ(directory_, "models/x");
  EXPECT_THAT(text_, Optional(std::string("a text")));
  EXPECT_TRUE(verbose_);
  EXPECT_THAT(file_, Optional(std::string("f.txt")));
  EXPECT_THAT(ctx_, Optional(7));
  EXPECT_EQ(top_k_, 0);
  EXPECT_EQ(top_p_, 0.5);
  EXPECT_THAT(budget_, Optional(2147483648U));
  EXPECT_THAT(trunk_, Optional(std::string("q4")));
  EXPECT_THAT(ids_, Optional(ElementsAre(3, 1, 2)));
}

TEST_F(FlagSetTest, AbsentFlagsKeepTheirDefaults) {
  ASSERT_THAT(Parse({"models/x"}), IsOk());
  EXPECT_EQ(text_, std::nullopt);
  EXPECT_EQ(ctx_, std::nullopt);
  EXPECT_EQ(top_k_, 40);
  EXPECT_FALSE(verbose_);
}

TEST_F(FlagSetTest, EmptyStopTextIsRefused) {
  ExpectUsageError({"models/x", "--stop", ""}, HasSubstr("--stop ''"));
}

TEST_F(FlagSetTest, RepeatableFlagsKeepTheOrderAndBracketsMeanNothing) {
  ASSERT_THAT(Parse({"models/x", "--stop", "[a,b]", "[1, 2]", "--stop", "c d"}), IsOk());
  EXPECT_THAT(stops_, ElementsAre("[a,b]", "c d"));
  EXPECT_THAT(text_, Optional(std::string("[1, 2]")));
}

TEST_F(FlagSetTest, ADashAloneIsAnArgument) {
  ASSERT_THAT(Parse({"models/x", "-"}), IsOk());
  EXPECT_THAT(text_, Optional(std::string("-")));
}

TEST_F(FlagSetTest, DoubleDashEndsTheFlags) {
  ASSERT_THAT(Parse({"models/x", "--", "--verbose"}), IsOk());
  EXPECT_THAT(text_, Optional(std::string("--verbose")));
  EXPECT_FALSE(verbose_);
}

TEST_F(FlagSetTest, UnknownFlagIsNamedWithTheLikelyOne) {
  ExpectUsageError({"models/x", "--budgte", "2GiB"},
                   AllOf(HasSubstr("unknown flag --budgte"), HasSubstr("did you mean --budget?")));
  ExpectUsageError({"models/x", "--zzzzzzz"}, HasSubstr("unknown flag --zzzzzzz"));
}

TEST_F(FlagSetTest, TooManyArgumentsAreNamed) {
  ExpectUsageError({"models/x", "once", "upon"}, HasSubstr("unexpected argument 'upon'"));
}

TEST_F(FlagSetTest, FlagsBehindADoubleDashAreNamed) {
  ExpectUsageError(
      {"models/x", "--", "-text", "--ctx", "2"},
      AllOf(HasSubstr("unexpected argument '--ctx'"), HasSubstr("put flags before --")));
}

TEST_F(FlagSetTest, MissingArgumentIsNamed) {
  ExpectUsageError({}, HasSubstr("DIR is missing"));
  ExpectUsageError({""}, HasSubstr("DIR"));
}

TEST_F(FlagSetTest, FlagWithoutItsValueIsNamed) {
  ExpectUsageError({"models/x", "--ctx"}, HasSubstr("--ctx needs a value"));
}

TEST_F(FlagSetTest, FlagGivenTwiceIsNamed) {
  ExpectUsageError({"models/x", "--ctx", "3", "--ctx", "4"}, HasSubstr("--ctx is given 2 times"));
}

TEST_F(FlagSetTest, ValueOutOfRangeNamesFlagValueAndRange) {
  ExpectUsageError({"models/x", "--ctx", "0"},
                   HasSubstr("--ctx '0': expected a whole number from 1 to 100"));
  ExpectUsageError({"models/x", "--ctx", "101"}, HasSubstr("--ctx '101'"));
  ExpectUsageError({"models/x", "--ctx", "7x"}, HasSubstr("--ctx '7x'"));
  ExpectUsageError({"models/x", "--top-k", "-1"},
                   HasSubstr("--top-k '-1': expected a whole number from 0 up"));
}

TEST_F(FlagSetTest, ValueOfAWrongKindNamesWhatIsExpected) {
  ExpectUsageError({"models/x", "--top-p", "high"}, HasSubstr("--top-p 'high': expected a number"));
  ExpectUsageError({"models/x", "--top-p", "nan"}, HasSubstr("expected a number"));
  ExpectUsageError({"models/x", "--budget", "8Gb"}, HasSubstr("write 8GiB"));
  ExpectUsageError({"models/x", "--trunk", "q5"}, HasSubstr("expected one of q4, q8"));
  ExpectUsageError({"models/x", "--ids", "1,x"}, HasSubstr("'x' is not one"));
  ExpectUsageError({"models/x", "--ids", "1,-2"}, HasSubstr("'-2' is not one"));
  ExpectUsageError({"models/x", "--ids", "2147483648"}, HasSubstr("'2147483648' is not one"));
  ExpectUsageError({"models/x", "--ids", " "}, HasSubstr("at least one token id"));
  ExpectUsageError({"models/x", "--ids", ","}, HasSubstr("one is missing beside a comma"));
  ExpectUsageError({"models/x", "--ids", "1,,3"}, HasSubstr("one is missing beside a comma"));
}

TEST_F(FlagSetTest, HelpListsFlagsHeadingsAndExamples) {
  const absl::StatusOr<std::optional<std::string>> help = Parse({"--help"});
  ASSERT_THAT(help, IsOk());
  EXPECT_THAT(*help, Optional(AllOf(HasSubstr("Usage: shoal test [OPTIONS] DIR [TEXT]"),
                                    HasSubstr("Numbers:"), HasSubstr("--trunk q4|q8"),
                                    HasSubstr("Examples:\n  shoal test DIR"))));
}

TEST(SuggestionTest, FindsTheClosestWithinAThirdOfTheLength) {
  const std::vector<std::string> commands = {"run", "chat", "convert", "tokenize"};
  EXPECT_THAT(Suggestion("rnu", commands), std::nullopt);  // two edits of three letters
  EXPECT_THAT(Suggestion("rum", commands), Optional(std::string("run")));
  EXPECT_THAT(Suggestion("covnert", commands), Optional(std::string("convert")));
  EXPECT_THAT(Suggestion("token", commands), Optional(std::string("tokenize")));
  EXPECT_THAT(Suggestion("serve", commands), std::nullopt);
}

TEST(ExitCodeTest, FollowsTheStatusUnlessMarked) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), ExitCode::kOk);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("x")), ExitCode::kFailure);
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("x")), ExitCode::kFailure);
  EXPECT_EQ(ExitCodeOf(absl::DataLossError("x")), ExitCode::kDataDamaged);
  EXPECT_EQ(ExitCodeOf(absl::CancelledError("x")), ExitCode::kInterrupted);
  EXPECT_EQ(ExitCodeOf(UsageError("x")), ExitCode::kUsage);
  EXPECT_EQ(
      ExitCodeOf(WithExitCode(absl::FailedPreconditionError("x"), ExitCode::kBudgetBelowFloor)),
      ExitCode::kBudgetBelowFloor);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("x")), ExitCode::kFailure);
  EXPECT_EQ(ExitCodeOf(CheckFits(MemoryPlan())), ExitCode::kBudgetBelowFloor);
}

}  // namespace
}  // namespace shoal
