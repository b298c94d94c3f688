#include "expert_node/expert_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint64_t kRecordBytes = 4096;

std::unique_ptr<ExpertCache> MakeCache(int64_t slots) {
  auto cache = ExpertCache::Create(kRecordBytes, slots);
  EXPECT_THAT(cache, testing::IsOk());
  return *std::move(cache);
}

RecordPart Whole(int64_t layer, int64_t expert) { return {{layer, expert, 0}, {0, 8}}; }

// Fills a record with one byte; counts how often it is called.
struct Loader {
  std::atomic<int> calls{0};
  absl::Status Fill(std::span<std::byte> record, int value) {
    ++calls;
    std::memset(record.data(), value, record.size());
    return absl::OkStatus();
  }
};

ExpertCache::Pin Load(ExpertCache& cache, int64_t expert, Loader& loader) {
  auto loaded = cache.PinOrLoad(
      Whole(1, expert),
      [&](std::span<std::byte> record) { return loader.Fill(record, static_cast<int>(expert)); },
      {});
  EXPECT_THAT(loaded, testing::IsOk());
  return std::move(loaded->pin);
}

TEST(ExpertCacheTest, KeepsWhatItLoadedUntilSlotsRunOut) {
  const auto cache = MakeCache(2);
  Loader loader;
  EXPECT_FALSE(cache->TryPin(Whole(1, 5)));
  Load(*cache, 5, loader);
  Load(*cache, 6, loader);
  const ExpertCache::Pin pin = cache->TryPin(Whole(1, 5));
  ASSERT_TRUE(pin);
  EXPECT_EQ(pin.record().size(), kRecordBytes);
  EXPECT_EQ(pin.record().back(), std::byte{5});
  Load(*cache, 5, loader);
  EXPECT_EQ(loader.calls, 2);
}

TEST(ExpertCacheTest, SameExpertOfAnotherLayerIsAnotherRecord) {
  const auto cache = MakeCache(2);
  Loader loader;
  Load(*cache, 5, loader);
  EXPECT_FALSE(cache->TryPin(Whole(2, 5)));
}

TEST(ExpertCacheTest, ReplacesTheLeastRecentlyUsed) {
  const auto cache = MakeCache(3);
  Loader loader;
  for (const int64_t expert : {1, 2, 3}) {
    Load(*cache, expert, loader);
  }
  cache->TryPin(Whole(1, 1));  // and lets it go: now 2 is the oldest
  Load(*cache, 4, loader);
  EXPECT_TRUE(cache->TryPin(Whole(1, 1)));
  EXPECT_FALSE(cache->TryPin(Whole(1, 2)));
  EXPECT_TRUE(cache->TryPin(Whole(1, 3)));
  EXPECT_TRUE(cache->TryPin(Whole(1, 4)));
}

// Units of an expert that is here in part: what covers them serves, nothing less does.
TEST(ExpertCacheTest, AnswersPartsOfWhatItLoaded) {
  const auto cache = MakeCache(3);
  Loader loader;
  const auto load = [&](UnitRange units, int value) {
    auto loaded = cache->PinOrLoad(
        {{1, 5, 0}, units}, [&](std::span<std::byte> r) { return loader.Fill(r, value); }, {});
    EXPECT_THAT(loaded, testing::IsOk());
    return loaded->was_loaded;
  };
  EXPECT_TRUE(load({2, 6}, 26));
  for (const UnitRange units : {UnitRange{2, 6}, UnitRange{2, 3}, UnitRange{4, 6}}) {
    const ExpertCache::Pin pin = cache->TryPin({{1, 5, 0}, units});
    ASSERT_TRUE(pin);
    EXPECT_EQ(pin.units(), (UnitRange{2, 6}));
    EXPECT_FALSE(load(units, 0));
  }
  for (const UnitRange units : {UnitRange{1, 6}, UnitRange{2, 7}, UnitRange{0, 2}}) {
    EXPECT_FALSE(cache->TryPin({{1, 5, 0}, units}));
  }
  EXPECT_TRUE(load({0, 8}, 8));  // beside the part, which is still here
  EXPECT_EQ(cache->TryPin({{1, 5, 0}, {0, 2}}).record().front(), std::byte{8});
  EXPECT_EQ(loader.calls, 2);
  // The whole goes; the part stays where it was.
  cache->TryPin({{1, 5, 0}, {2, 6}});
  Load(*cache, 6, loader);
  Load(*cache, 7, loader);
  EXPECT_FALSE(cache->TryPin(Whole(1, 5)));
  EXPECT_TRUE(cache->TryPin({{1, 5, 0}, {2, 6}}));
}

TEST(ExpertCacheTest, NeverReplacesAPinnedRecord) {
  const auto cache = MakeCache(2);
  Loader loader;
  const ExpertCache::Pin pin = Load(*cache, 1, loader);
  for (int64_t expert = 2; expert < 20; ++expert) {
    Load(*cache, expert, loader);
  }
  EXPECT_EQ(pin.record().front(), std::byte{1});
  EXPECT_TRUE(cache->TryPin(Whole(1, 1)));
}

TEST(ExpertCacheTest, WaitsForASlotWhereAllArePinned) {
  const auto cache = MakeCache(1);
  Loader loader;
  ExpertCache::Pin pin = Load(*cache, 1, loader);
  std::thread other([&] {
    const ExpertCache::Pin second = Load(*cache, 2, loader);
    EXPECT_EQ(second.record().front(), std::byte{2});
  });
  EXPECT_EQ(pin.record().front(), std::byte{1});
  pin = {};
  other.join();
  EXPECT_EQ(loader.calls, 2);
}

TEST(ExpertCacheTest, StopEndsTheWaitForASlot) {
  const auto cache = MakeCache(1);
  Loader loader;
  const ExpertCache::Pin pin = Load(*cache, 1, loader);
  std::stop_source stop;
  absl::Status status;
  std::thread other([&] {
    status = cache
                 ->PinOrLoad(
                     Whole(1, 2), [&](std::span<std::byte> r) { return loader.Fill(r, 2); },
                     stop.get_token())
                 .status();
  });
  stop.request_stop();
  other.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kCancelled, HasSubstr("waiting for an expert")));
  EXPECT_EQ(loader.calls, 1);
}

TEST(ExpertCacheTest, OneLoadServesAllWhoWantTheRecord) {
  const auto cache = MakeCache(4);
  Loader loader;
  std::atomic<int> loads{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const auto loaded = cache->PinOrLoad(Whole(1, 9),
                                           [&](std::span<std::byte> record) {
                                             std::this_thread::yield();
                                             return loader.Fill(record, 9);
                                           },
                                           {});
      ASSERT_THAT(loaded, testing::IsOk());
      EXPECT_EQ(loaded->pin.record().back(), std::byte{9});
      loads += loaded->was_loaded ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(loader.calls, 1);
  EXPECT_EQ(loads, 1);
}

TEST(ExpertCacheTest, AFailedLoadLeavesTheSlotFreeAndTheRecordAbsent) {
  const auto cache = MakeCache(1);
  Loader loader;
  EXPECT_THAT(
      cache->PinOrLoad(Whole(1, 1),
                       [](std::span<std::byte>) { return absl::DataLossError("broken"); }, {}),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("broken")));
  EXPECT_FALSE(cache->TryPin(Whole(1, 1)));
  const ExpertCache::Pin pin = Load(*cache, 1, loader);
  EXPECT_EQ(pin.record().front(), std::byte{1});
}

TEST(ExpertCacheTest, RefusesSizesThatOverflow) {
  EXPECT_THAT(ExpertCache::Create(uint64_t{1} << 40, int64_t{1} << 40),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a usable size")));
  EXPECT_THAT(ExpertCache::Create(kRecordBytes, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a usable size")));
}

TEST(ExpertCacheTest, ManyThreadsAndFewSlotsGiveEveryoneTheirRecord) {
  const auto cache = MakeCache(3);
  Loader loader;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 300; ++i) {
        const int64_t expert = (i * 7 + t * 3) % 11;
        const ExpertCache::Pin pin = Load(*cache, expert, loader);
        EXPECT_EQ(pin.record().front(), static_cast<std::byte>(expert));
        EXPECT_EQ(pin.record().back(), static_cast<std::byte>(expert));
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace shoal
