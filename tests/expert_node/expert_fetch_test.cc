// A batch's fetch against a disk that is busy with something else.
#include "expert_node/expert_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;

// Seals whatever record it is asked for.
class SealingReader final : public RecordReader {
 public:
  explicit SealingReader(const UnitLayout& layout) : layout_(layout) {}

  absl::Status Read(int64_t layer, uint64_t offset_bytes, std::span<std::byte> out,
                    ReadCounts& counts) override {
    ++counts.reads;
    const auto expert = static_cast<int64_t>(offset_bytes / layout_.record_bytes);
    for (int64_t unit = 0; unit < layout_.num_units; ++unit) {
      SealUnit(layout_, {layer, expert}, unit,
               out.subspan(static_cast<uint64_t>(unit) * layout_.unit_bytes, layout_.unit_bytes));
    }
    return absl::OkStatus();
  }
  std::string PathOf(int64_t) const override { return "bank"; }
  ReaderMode Mode() const override { return {true, "fake", ""}; }

 private:
  const UnitLayout layout_;
};

// Holds an I/O thread until it is let go.
class Blocker {
 public:
  // Outlives `io`.
  void Block(IoThreads& io) {
    io.Submit(this, [this] {
      begun_ = true;
      begun_.notify_all();
      released_.wait(false);
    });
    begun_.wait(false);
  }
  void Release() {
    released_ = true;
    released_.notify_all();
  }
  bool released() const { return released_; }

 private:
  std::atomic<bool> begun_{false};
  std::atomic<bool> released_{false};
};

class ExpertFetchTest : public ::testing::Test {
 protected:
  ExpertFetchTest()
      : layout_(*UnitLayout::Make(ExpertCodec::kRvq3, 40, 64)),
        cache_(*ExpertCache::Create(layout_.record_bytes, 4)),
        stores_(MakeStores(layout_)) {}

  static std::vector<std::unique_ptr<ExpertStore>> MakeStores(const UnitLayout& layout) {
    SliceSource source;
    source.slice = {{0, layout.num_units}, {0, 8}};
    source.unit_bytes = layout.unit_bytes;
    source.stride_bytes = layout.record_bytes;
    std::vector<std::unique_ptr<ExpertStore>> stores;
    stores.push_back(
        std::make_unique<ExpertStore>(layout, source, std::make_unique<SealingReader>(layout)));
    return stores;
  }
  std::vector<RecordPart> Records(std::vector<int64_t> experts) const {
    std::vector<RecordPart> records;
    for (const int64_t expert : experts) {
      records.push_back({{1, expert, 0}, {0, layout_.num_units}});
    }
    return records;
  }

  const UnitLayout layout_;
  std::unique_ptr<ExpertCache> cache_;
  std::vector<std::unique_ptr<ExpertStore>> stores_;
};

TEST_F(ExpertFetchTest, HandsOutEveryExpertOnce) {
  IoThreads io(2);
  ExpertFetch fetch(*cache_, stores_, io);
  fetch.Start(Records({0, 2, 5}), {});
  size_t num_ready = 0;
  while (num_ready < 3) {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto ready, fetch.Next());
    ASSERT_FALSE(ready.empty());
    num_ready += ready.size();
  }
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto rest, fetch.Next());
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(fetch.counts().misses, 3);
}

TEST_F(ExpertFetchTest, OneThatIsCancelledDoesNotWaitForAnotherCallsReads) {
  Blocker blocker;
  IoThreads io(1);
  blocker.Block(io);
  // So that a fetch that waits fails the test instead of hanging it.
  std::jthread watchdog([&blocker](const std::stop_token& done) {
    for (int i = 0; i < 1000 && !done.stop_requested(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    blocker.Release();
  });
  std::stop_source stop;
  {
    ExpertFetch fetch(*cache_, stores_, io);
    fetch.Start(Records({0, 2, 5}), stop.get_token());
    stop.request_stop();
    EXPECT_THAT(fetch.Next(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("cancelled")));
  }
  EXPECT_FALSE(blocker.released());
}

TEST(IoThreadsTest, WithdrawsOnlyTheOwnersJobsThatHaveNotBegun) {
  std::atomic<int> mine{0};
  std::atomic<int> theirs{0};
  Blocker blocker;
  {
    IoThreads io(1);
    blocker.Block(io);
    for (int i = 0; i < 3; ++i) {
      io.Submit(&mine, [&mine] { ++mine; });
      io.Submit(&theirs, [&theirs] { ++theirs; });
    }
    EXPECT_EQ(io.Withdraw(&mine), 3U);
    EXPECT_EQ(io.Withdraw(&mine), 0U);
    EXPECT_EQ(io.Withdraw(&blocker), 0U);
    blocker.Release();
  }
  EXPECT_EQ(mine, 0);
  EXPECT_EQ(theirs, 3);
}

}  // namespace
}  // namespace shoal
