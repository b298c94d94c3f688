#include "coordinator/cli/interrupt.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <utility>

#include "common/io/unique_fd.h"
#include "common/status/status_util.h"
#include "common/sync/mutex.h"
#include "coordinator/cli/exit_code.h"

namespace shoal {
namespace {

// A signal handler has no argument to carry state: the only globals of the program.
std::atomic<int> wake_fd{-1};
std::atomic<bool> pending{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void Wake(int fd) {
  const uint64_t one = 1;
  // An eventfd takes this unless 2^64 wakes are waiting; there is nobody to tell in a handler.
  [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof(one));
}

void OnInterrupt(int /*signal*/) {
  const int saved_errno = errno;
  if (pending.exchange(true)) {
    ::_exit(static_cast<int>(ExitCode::kInterrupted));
  }
  Wake(wake_fd.load());
  errno = saved_errno;
}

}  // namespace

struct Interrupt::Impl {
  // Turns wakes into stop requests: request_stop runs callbacks and may not be called in a handler.
  void Watch() {
    while (true) {
      uint64_t wakes = 0;
      if (::read(event.get(), &wakes, sizeof(wakes)) < 0 && errno != EINTR) {
        return;
      }
      if (closing) {
        return;
      }
      if (pending) {
        Source().request_stop();
      }
    }
  }

  std::stop_source Source() {
    MutexLock lock(&mutex);
    return source;
  }

  UniqueFd event;
  bool installed = false;
  struct sigaction previous = {};
  std::atomic<bool> closing{false};
  Mutex mutex;
  std::stop_source source ABSL_GUARDED_BY(mutex);
  std::thread watcher;
};

Interrupt::Interrupt(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<Interrupt>> Interrupt::Install() {
  auto impl = std::make_unique<Impl>();
  impl->event = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (impl->event.get() < 0) {
    return ErrnoToStatus(errno, "create an event descriptor for Ctrl-C");
  }
  pending = false;
  wake_fd = impl->event.get();
  impl->watcher = std::thread([raw = impl.get()] { raw->Watch(); });
  ::sigaction(SIGINT, nullptr, &impl->previous);
  if (impl->previous.sa_handler != SIG_IGN) {
    struct sigaction action = {};
    action.sa_handler = OnInterrupt;
    action.sa_flags = SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    impl->installed = ::sigaction(SIGINT, &action, nullptr) == 0;
  }
  return std::unique_ptr<Interrupt>(new Interrupt(std::move(impl)));
}

Interrupt::~Interrupt() {
  if (impl_->installed) {
    ::sigaction(SIGINT, &impl_->previous, nullptr);
  }
  impl_->closing = true;
  Wake(impl_->event.get());
  impl_->watcher.join();
  wake_fd = -1;
}

std::stop_token Interrupt::token() const {
  MutexLock lock(&impl_->mutex);
  return impl_->source.get_token();
}

void Interrupt::Rearm() {
  MutexLock lock(&impl_->mutex);
  if (impl_->source.stop_requested()) {
    impl_->source = std::stop_source();
    pending = false;
  }
}

}  // namespace shoal
