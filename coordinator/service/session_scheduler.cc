#include "coordinator/service/session_scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/service/error_details.h"

namespace shoal {
namespace {

// A call that is refused comes back neither at once nor after it has been forgotten.
constexpr absl::Duration kShortestRetry = absl::Milliseconds(100);
constexpr absl::Duration kLongestRetry = absl::Minutes(5);
// Weight of the newest job in the mean.
constexpr double kNewest = 0.2;

}  // namespace

SessionScheduler::SessionScheduler(int num_sessions, int64_t max_waiting, const Clock& clock)
    : max_waiting_(max_waiting), clock_(clock) {
  const int count = std::max(num_sessions, 1);
  {
    MutexLock lock(&mutex_);
    running_.resize(static_cast<size_t>(count));
  }
  threads_.reserve(static_cast<size_t>(count));
  for (int session = 0; session < count; ++session) {
    threads_.emplace_back([this, session] { RunSession(session); });
  }
}

SessionScheduler::~SessionScheduler() {
  MutexLock lock(&mutex_);
  stopping_ = true;
  submitted_.NotifyAll();
}

absl::Status SessionScheduler::Submit(SessionJob& job, const std::stop_token& stop) {
  MutexLock lock(&mutex_);
  // Under the lock: whoever stops a job withdraws it after.
  if (stop.stop_requested()) {
    return absl::CancelledError("stopped");
  }
  if (draining_) {
    return DrainingError();
  }
  const auto free = std::ssize(running_) - NumRunning();
  const auto waiting = std::ssize(line_) - free;  // behind those that begin in a moment
  if (waiting >= max_waiting_) {
    return WithRetry(ClientError(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                                 absl::StrCat("the server is busy (sessions: ", running_.size(),
                                              "), and as many calls wait as may: ", max_waiting_,
                                              "; try again")),
                     RetryDelayLocked());
  }
  line_.push_back(&job);
  if (waiting >= 0) {
    job.OnPlace(waiting + 1);
  }
  submitted_.NotifyOne();
  return absl::OkStatus();
}

bool SessionScheduler::Withdraw(SessionJob& job) {
  MutexLock lock(&mutex_);
  const auto found = std::find(line_.begin(), line_.end(), &job);
  if (found == line_.end()) {
    return false;
  }
  line_.erase(found);
  TellPlaces();
  return true;
}

void SessionScheduler::Drain() {
  std::deque<SessionJob*> dropped;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    dropped = std::exchange(line_, {});
  }
  for (SessionJob* job : dropped) {
    job->Dropped(DrainingError());
  }
}

SessionScheduler::Load SessionScheduler::load() {
  MutexLock lock(&mutex_);
  return {NumRunning(), std::ssize(line_), draining_};
}

absl::Duration SessionScheduler::RetryDelay() {
  MutexLock lock(&mutex_);
  return RetryDelayLocked();
}

void SessionScheduler::RunSession(int session) {
  while (SessionJob* job = Next(session)) {
    job->Run(session);
    {
      MutexLock lock(&mutex_);
      Running& running = running_[static_cast<size_t>(session)];
      const absl::Duration took = clock_.Now() - running.since;
      mean_time_ =
          mean_time_ == absl::ZeroDuration() ? took : mean_time_ * (1 - kNewest) + took * kNewest;
      running = {};
      submitted_.NotifyAll();  // another of its caller's may run now, on any thread
    }
    job->Ended();
  }
}

SessionJob* SessionScheduler::Next(int session) {
  MutexLock lock(&mutex_);
  auto next = FirstThatMayRun();
  while (next == line_.end() && !stopping_) {
    submitted_.Wait(&mutex_);
    next = FirstThatMayRun();
  }
  if (next == line_.end()) {
    return nullptr;
  }
  SessionJob* job = *next;
  line_.erase(next);
  running_[static_cast<size_t>(session)] = {job, clock_.Now()};
  TellPlaces();
  return job;
}

void SessionScheduler::TellPlaces() {
  const auto free = std::ssize(running_) - NumRunning();
  for (auto i = free; i < std::ssize(line_); ++i) {
    line_[static_cast<size_t>(i)]->OnPlace(i - free + 1);
  }
}

std::deque<SessionJob*>::iterator SessionScheduler::FirstThatMayRun() {
  if (running_.size() == 1) {
    return line_.begin();
  }
  for (auto it = line_.begin(); it != line_.end(); ++it) {
    const std::string& caller = (*it)->caller();
    const auto of_caller =
        std::count_if(running_.begin(), running_.end(), [&caller](const Running& running) {
          return running.job != nullptr && running.job->caller() == caller;
        });
    if (caller.empty() || of_caller + 1 < std::ssize(running_)) {
      return it;
    }
  }
  return line_.end();
}

int64_t SessionScheduler::NumRunning() const {
  return std::count_if(running_.begin(), running_.end(),
                       [](const Running& running) { return running.job != nullptr; });
}

absl::Duration SessionScheduler::RetryDelayLocked() const {
  absl::Duration job_time = mean_time_;
  for (const Running& running : running_) {
    // Before the first has ended, and where jobs have become longer.
    if (running.job != nullptr) {
      job_time = std::max(job_time, clock_.Now() - running.since);
    }
  }
  // With all sessions busy one ends, and the line moves up, this often.
  return std::clamp(job_time / std::ssize(running_), kShortestRetry, kLongestRetry);
}

}  // namespace shoal
