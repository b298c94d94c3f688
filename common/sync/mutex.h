// A mutex that clang's -Wthread-safety and the thread sanitizer both understand. absl::Mutex as
// packaged is not instrumented, so correctly locked data looks like a race under TSan; std::mutex
// does not.
#ifndef SHOAL_COMMON_SYNC_MUTEX_H_
#define SHOAL_COMMON_SYNC_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace shoal {

// Non-recursive mutex. Has the lower-case names too, so that std::condition_variable_any can wait
// on it.
class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.lock();
  }  // NOLINT(readability-identifier-naming)
  void unlock() ABSL_UNLOCK_FUNCTION() {
    mutex_.unlock();
  }  // NOLINT(readability-identifier-naming)

 private:
  std::mutex mutex_;
};

// Holds `mutex` from construction to destruction.
class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// Condition variable for Mutex. Wait releases and reacquires `mutex`, which the caller holds;
// callers loop on their own predicate.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { cv_.wait(*mutex); }
  // Also returns when `timeout`, which may be infinite, is over.
  void WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (timeout == absl::InfiniteDuration()) {
      cv_.wait(*mutex);
    } else {
      cv_.wait_for(*mutex, absl::ToChronoNanoseconds(timeout));
    }
  }
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  std::condition_variable_any cv_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_MUTEX_H_
