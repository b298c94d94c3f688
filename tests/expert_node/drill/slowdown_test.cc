#include "expert_node/drill/slowdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "expert_node/drill/slowed_backend.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

class HandClock final : public Clock {
 public:
  absl::Time Now() const override { return now_; }
  void Advance(absl::Duration time) { now_ += time; }

 private:
  absl::Time now_ = absl::UnixEpoch();
};

TEST(SlowdownTest, WhatIsDoneTakesFactorTimesItsTime) {
  HandClock clock;
  Slowdown slowdown(clock);
  EXPECT_EQ(slowdown.Rest(absl::Milliseconds(3)), absl::ZeroDuration());
  slowdown.Begin(50, absl::Seconds(10));
  EXPECT_EQ(slowdown.Rest(absl::Milliseconds(3)), absl::Milliseconds(147));
  EXPECT_EQ(slowdown.Rest(absl::ZeroDuration()), absl::ZeroDuration());
}

TEST(SlowdownTest, NothingWaitsBeyondItsEnd) {
  HandClock clock;
  Slowdown slowdown(clock);
  slowdown.Begin(1000, absl::Seconds(10));
  EXPECT_EQ(slowdown.Rest(absl::Seconds(1)), absl::Seconds(10));
  clock.Advance(absl::Seconds(9));
  EXPECT_EQ(slowdown.Rest(absl::Seconds(1)), absl::Seconds(1));
  clock.Advance(absl::Seconds(2));
  EXPECT_EQ(slowdown.Rest(absl::Seconds(1)), absl::ZeroDuration());
}

TEST(SlowdownTest, EndIsAtOnceAndANewOneReplacesTheOld) {
  HandClock clock;
  Slowdown slowdown(clock);
  slowdown.Begin(10, absl::Seconds(10));
  slowdown.Begin(3, absl::Seconds(10));
  EXPECT_EQ(slowdown.Rest(absl::Seconds(1)), absl::Seconds(2));
  slowdown.End();
  EXPECT_EQ(slowdown.Rest(absl::Seconds(1)), absl::ZeroDuration());
}

// Would wait for minutes; a thread that is not woken makes the test time out.
TEST(SlowdownTest, WhoWaitsIsWokenByTheEnd) {
  Slowdown slowdown(Clock::Real());
  slowdown.Begin(1000, absl::Minutes(10));
  std::jthread waiting([&slowdown] { slowdown.Wait(absl::Seconds(1), {}); });
  slowdown.End();
}

TEST(SlowdownTest, WhoWaitsIsWokenByAStop) {
  Slowdown slowdown(Clock::Real());
  slowdown.Begin(1000, absl::Minutes(10));
  std::jthread waiting(
      [&slowdown](const std::stop_token& stop) { slowdown.Wait(absl::Seconds(1), stop); });
  waiting.request_stop();
}

// Lets time pass on a clock, and gives one sum.
class TimedBackend final : public ExpertBackend {
 public:
  TimedBackend(HandClock& clock, absl::Duration time) : clock_(clock), time_(time) {}
  absl::Status Execute(const Batch&, std::span<const ExpertSlice>, std::stop_token,
                       std::span<int64_t> out) override {
    clock_.Advance(time_);
    out[0] = 7;
    return absl::OkStatus();
  }
  std::vector<ExpertLayerStats> Stats() const override { return {}; }

 private:
  HandClock& clock_;
  const absl::Duration time_;
};

TEST(SlowedBackendTest, GivesTheBackendsSumsOnceTheSlowdownIsOver) {
  HandClock clock;
  Slowdown slowdown(clock);
  slowdown.Begin(2, absl::Seconds(5));
  // The layer takes longer than the slowdown goes on, so that nothing is left to wait for.
  TimedBackend timed(clock, absl::Seconds(6));
  SlowedBackend slowed(timed, absl::ZeroDuration(), slowdown, clock);
  std::vector<int64_t> out(1);
  SHOAL_EXPECT_OK(slowed.Execute({}, {}, {}, out));
  EXPECT_EQ(out[0], 7);
}

class SleepingBackend final : public ExpertBackend {
 public:
  explicit SleepingBackend(absl::Duration time) : time_(time) {}
  absl::Status Execute(const Batch&, std::span<const ExpertSlice>, std::stop_token,
                       std::span<int64_t>) override {
    absl::SleepFor(time_);
    return absl::OkStatus();
  }
  std::vector<ExpertLayerStats> Stats() const override { return {}; }

 private:
  const absl::Duration time_;
};

// Never less than that, however slow the machine is: the only bound that can be told.
TEST(SlowedBackendTest, ALayerTakesFactorTimesAsLongAsTheBackend) {
  const Clock& clock = Clock::Real();
  Slowdown slowdown(clock);
  slowdown.Begin(20, absl::Minutes(5));
  SleepingBackend sleeping(absl::Milliseconds(2));
  SlowedBackend slowed(sleeping, absl::ZeroDuration(), slowdown, clock);
  const absl::Time start = clock.Now();
  SHOAL_EXPECT_OK(slowed.Execute({}, {}, {}, {}));
  EXPECT_GE(clock.Now() - start, absl::Milliseconds(40));
}

}  // namespace
}  // namespace shoal
