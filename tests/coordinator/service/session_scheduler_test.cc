#include "coordinator/service/session_scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/coordinator/service/error_info.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::InfoOf;
using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MovedClock final : public Clock {
 public:
  absl::Time Now() const override {
    return absl::UnixEpoch() + absl::Milliseconds(milliseconds_.load());
  }
  void Move(absl::Duration time) { milliseconds_ += absl::ToInt64Milliseconds(time); }

 private:
  std::atomic<int64_t> milliseconds_{0};
};

// Runs until it is let go.
class Job final : public SessionJob {
 public:
  explicit Job(std::string whose = "") : whose_(std::move(whose)) {}
  const std::string& caller() const override { return whose_; }
  void OnPlace(int64_t place) override { places.push_back(place); }
  void Run(int number) override {
    session = number;
    state = kRunning;
    state.notify_all();
    go.wait(false);
  }
  void Ended() override { Become(kEnded); }
  void Dropped(const absl::Status& why) override {
    dropped = why;
    Become(kDropped);
  }

  void LetGo() {
    go = true;
    go.notify_all();
  }
  void WaitFor(int wanted) {
    for (int now = state; now != wanted; now = state) {
      state.wait(now);
    }
  }

  enum { kNew, kRunning, kEnded, kDropped };
  std::atomic<int> state{kNew};
  std::atomic<bool> go{false};
  std::atomic<int> session{-1};
  std::vector<int64_t> places;  // under the scheduler's lock
  absl::Status dropped;

 private:
  const std::string whose_;
  void Become(int next) {
    state = next;
    state.notify_all();
  }
};

TEST(SessionSchedulerTest, RunsAsManyAsThereAreSessionsEachWithItsOwn) {
  MovedClock clock;
  Job a;
  Job b;
  Job c;
  SessionScheduler scheduler(2, 1, clock);
  ASSERT_THAT(scheduler.Submit(a, {}), IsOk());
  ASSERT_THAT(scheduler.Submit(b, {}), IsOk());
  a.WaitFor(Job::kRunning);
  b.WaitFor(Job::kRunning);
  ASSERT_THAT(scheduler.Submit(c, {}), IsOk());
  EXPECT_EQ(a.session + b.session, 1);
  EXPECT_EQ(scheduler.load().running, 2);
  EXPECT_EQ(scheduler.load().waiting, 1);
  EXPECT_THAT(a.places, IsEmpty());
  const int freed = a.session;
  a.LetGo();
  a.WaitFor(Job::kEnded);
  c.WaitFor(Job::kRunning);
  EXPECT_EQ(c.session, freed);
  EXPECT_THAT(c.places, ElementsAre(1));
  b.LetGo();
  c.LetGo();
  b.WaitFor(Job::kEnded);
  c.WaitFor(Job::kEnded);
}

TEST(SessionSchedulerTest, TheLineIsBoundedAndMovesUp) {
  MovedClock clock;
  Job running;
  Job jobs[3];
  SessionScheduler scheduler(1, 2, clock);
  ASSERT_THAT(scheduler.Submit(running, {}), IsOk());
  running.WaitFor(Job::kRunning);
  ASSERT_THAT(scheduler.Submit(jobs[0], {}), IsOk());
  ASSERT_THAT(scheduler.Submit(jobs[1], {}), IsOk());
  const absl::Status full = scheduler.Submit(jobs[2], {});
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted, _));
  EXPECT_EQ(InfoOf(full).reason, "QUEUE_FULL");
  EXPECT_TRUE(scheduler.Withdraw(jobs[0]));
  EXPECT_FALSE(scheduler.Withdraw(jobs[0]));
  EXPECT_FALSE(scheduler.Withdraw(running));
  EXPECT_THAT(jobs[1].places, ElementsAre(2, 1));
  EXPECT_THAT(scheduler.Submit(jobs[2], {}), IsOk());
  for (Job* job : {&running, &jobs[1], &jobs[2]}) {
    job->WaitFor(Job::kRunning);
    job->LetGo();
    job->WaitFor(Job::kEnded);
  }
  EXPECT_EQ(jobs[0].state, Job::kNew);
}

// A session is free before its caller is told: who calls one after the other needs no line.
TEST(SessionSchedulerTest, WithoutALineOneAfterTheOtherIsServed) {
  MovedClock clock;
  std::vector<Job> jobs(100);
  SessionScheduler scheduler(1, 0, clock);
  for (Job& job : jobs) {
    ASSERT_THAT(scheduler.Submit(job, {}), IsOk());
    job.LetGo();
    job.WaitFor(Job::kEnded);
    EXPECT_THAT(job.places, IsEmpty());
  }
}

TEST(SessionSchedulerTest, OneCallerDoesNotGetTheLastSession) {
  MovedClock clock;
  Job first("greedy");
  Job second("greedy");
  Job third("greedy");
  Job other("modest");
  SessionScheduler scheduler(3, 4, clock);
  for (Job* job : {&first, &second, &third}) {
    ASSERT_THAT(scheduler.Submit(*job, {}), IsOk());
  }
  first.WaitFor(Job::kRunning);
  second.WaitFor(Job::kRunning);
  EXPECT_EQ(scheduler.load().waiting, 1);
  ASSERT_THAT(scheduler.Submit(other, {}), IsOk());
  other.WaitFor(Job::kRunning);
  EXPECT_EQ(third.state, Job::kNew);
  first.LetGo();
  third.WaitFor(Job::kRunning);
  for (Job* job : {&second, &third, &other}) {
    job->LetGo();
  }
  for (Job* job : {&first, &second, &third, &other}) {
    job->WaitFor(Job::kEnded);
  }
}

TEST(SessionSchedulerTest, TheDelayComesFromHowLongJobsTook) {
  MovedClock clock;
  Job first;
  Job second;
  SessionScheduler scheduler(2, 4, clock);
  ASSERT_THAT(scheduler.Submit(first, {}), IsOk());
  first.WaitFor(Job::kRunning);
  clock.Move(absl::Seconds(8));
  // None has ended: by the one that runs. Two sessions, so a place every half of it.
  EXPECT_EQ(scheduler.RetryDelay(), absl::Seconds(4));
  clock.Move(absl::Seconds(2));
  first.LetGo();
  first.WaitFor(Job::kEnded);
  EXPECT_EQ(scheduler.RetryDelay(), absl::Seconds(5));
  ASSERT_THAT(scheduler.Submit(second, {}), IsOk());
  second.WaitFor(Job::kRunning);
  clock.Move(absl::Seconds(20));
  second.LetGo();
  second.WaitFor(Job::kEnded);
  EXPECT_EQ(scheduler.RetryDelay(), absl::Seconds(6));  // (0.8 * 10 + 0.2 * 20) / 2
}

TEST(SessionSchedulerTest, TheDelayIsNeitherNothingNorForever) {
  MovedClock clock;
  Job job;
  SessionScheduler scheduler(1, 0, clock);
  EXPECT_EQ(scheduler.RetryDelay(), absl::Milliseconds(100));
  ASSERT_THAT(scheduler.Submit(job, {}), IsOk());
  job.WaitFor(Job::kRunning);
  clock.Move(absl::Hours(30));
  EXPECT_EQ(scheduler.RetryDelay(), absl::Minutes(5));
  job.LetGo();
  job.WaitFor(Job::kEnded);
}

TEST(SessionSchedulerTest, AJobThatWasStoppedIsNotTaken) {
  MovedClock clock;
  Job job;
  SessionScheduler scheduler(1, 1, clock);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_THAT(scheduler.Submit(job, stop.get_token()), StatusIs(absl::StatusCode::kCancelled, _));
  EXPECT_EQ(job.state, Job::kNew);
}

TEST(SessionSchedulerTest, DrainingEndsTheLineAndLeavesWhatRuns) {
  MovedClock clock;
  Job running;
  Job waiting;
  Job late;
  SessionScheduler scheduler(1, 2, clock);
  ASSERT_THAT(scheduler.Submit(running, {}), IsOk());
  running.WaitFor(Job::kRunning);
  ASSERT_THAT(scheduler.Submit(waiting, {}), IsOk());
  scheduler.Drain();
  waiting.WaitFor(Job::kDropped);
  EXPECT_EQ(InfoOf(waiting.dropped).reason, "DRAINING");
  const absl::Status refused = scheduler.Submit(late, {});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kUnavailable, _));
  EXPECT_EQ(InfoOf(refused).reason, "DRAINING");
  EXPECT_TRUE(scheduler.load().draining);
  EXPECT_EQ(running.state, Job::kRunning);
  running.LetGo();
  running.WaitFor(Job::kEnded);
}

}  // namespace
}  // namespace shoal
