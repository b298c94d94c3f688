#include "coordinator/service/turns.h"

#include <algorithm>

namespace shoal {

bool Turns::Take(const std::stop_token& stop) {
  Waiter waiter;
  // Before the lock: a stop that has come already calls it at once.
  const std::stop_callback wake(stop, [this, &waiter] { Wake(waiter); });
  MutexLock lock(&mutex_);
  if (!taken_) {
    taken_ = true;
    return true;
  }
  return WaitInLine(waiter, stop);
}

void Turns::Leave() {
  MutexLock lock(&mutex_);
  HandOver();
}

bool Turns::Pass(const std::stop_token& stop) {
  {
    MutexLock lock(&mutex_);
    if (line_.empty()) {
      return true;
    }
  }
  Waiter waiter;
  const std::stop_callback wake(stop, [this, &waiter] { Wake(waiter); });
  // In one piece: whoever gets the turn now must not be in line again before this one is.
  MutexLock lock(&mutex_);
  if (line_.empty()) {
    return true;  // it has been left meanwhile
  }
  HandOver();
  return WaitInLine(waiter, stop);
}

int Turns::num_waiting() {
  MutexLock lock(&mutex_);
  return static_cast<int>(line_.size());
}

void Turns::Wake(Waiter& waiter) {
  MutexLock lock(&mutex_);
  waiter.changed.NotifyAll();
}

void Turns::HandOver() {
  if (line_.empty()) {
    taken_ = false;
    return;
  }
  line_.front()->has_turn = true;
  line_.front()->changed.NotifyAll();
  line_.pop_front();
}

bool Turns::WaitInLine(Waiter& waiter, const std::stop_token& stop) {
  line_.push_back(&waiter);
  while (!waiter.has_turn && !stop.stop_requested()) {
    waiter.changed.Wait(&mutex_);
  }
  if (!waiter.has_turn) {
    line_.erase(std::find(line_.begin(), line_.end(), &waiter));
  }
  return waiter.has_turn;
}

}  // namespace shoal
