#include "coordinator/stop_matcher.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace shoal {
namespace {

// What comes out for `text` cut into pieces of `piece_bytes`.
std::string Filter(const std::vector<std::string>& stops, const std::string& text,
                   size_t piece_bytes) {
  StopMatcher matcher(stops);
  std::string out;
  for (size_t at = 0; at < text.size(); at += piece_bytes) {
    out += matcher.Push(text.substr(at, piece_bytes));
  }
  return out + matcher.Flush();
}

TEST(StopMatcherTest, WithoutStopStringsTextPassesAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, HoldsBackOnlyWhatCouldBecomeAStopString) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("one EN"), "one ");
  EXPECT_EQ(matcher.Push("TER "), "ENTER ");
  EXPECT_FALSE(matcher.found());
}

TEST(StopMatcherTest, FindsAStopStringAcrossPieces) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("one E"), "one ");
  EXPECT_EQ(matcher.Push("N"), "");
  EXPECT_EQ(matcher.Push("D two"), "");
  EXPECT_TRUE(matcher.found());
}

TEST(StopMatcherTest, SwallowsEverythingAfterAMatch) {
  StopMatcher matcher({"x"});
  EXPECT_EQ(matcher.Push("axb"), "a");
  EXPECT_EQ(matcher.Push("c"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, FlushReleasesAnIncompleteStopString) {
  StopMatcher matcher({"END"});
  EXPECT_EQ(matcher.Push("EN"), "");
  EXPECT_EQ(matcher.Flush(), "EN");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcherTest, RepeatedBeginningsAreFound) {
  // The naive matcher that restarts after a mismatch misses the match that began inside it.
  EXPECT_EQ(Filter({"aab"}, "aaab tail", 1), "a");
}

TEST(StopMatcherTest, TheStopStringThatIsCompleteFirstWins) {
  EXPECT_EQ(Filter({"abcd", "bc"}, "abcd", 4), "a");
  EXPECT_EQ(Filter({"abc", "c"}, "xabc", 4), "x");
}

TEST(StopMatcherTest, WhereThePiecesAreCutChangesNothing) {
  const std::vector<std::string> stops = {"abcd", "bc", "zz", "caab"};
  for (const std::string text : {"abcd", "aabd ab", "xzabzz", "ccaab", "abab", "z"}) {
    const std::string whole = Filter(stops, text, text.size());
    for (size_t piece_bytes = 1; piece_bytes < text.size(); ++piece_bytes) {
      EXPECT_EQ(Filter(stops, text, piece_bytes), whole) << text << " in pieces of " << piece_bytes;
    }
  }
}

}  // namespace
}  // namespace shoal
