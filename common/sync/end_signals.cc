#include "common/sync/end_signals.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <initializer_list>

namespace shoal {

EndSignals::EndSignals() {
  ::sigemptyset(&held_);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    struct sigaction current = {};
    if (::sigaction(number, nullptr, &current) == 0 && current.sa_handler != SIG_IGN) {
      ::sigaddset(&held_, number);
    }
  }
  ::pthread_sigmask(SIG_BLOCK, &held_, nullptr);
}

void EndSignals::Wait() {
  int number = 0;
  ::sigwait(&held_, &number);
  ::pthread_sigmask(SIG_UNBLOCK, &held_, nullptr);
}

EndAtOnce::EndAtOnce(const EndSignals& signals)
    : watcher_([held = signals.held()](const std::stop_token& done) {
        constexpr timespec kLookAgain = {0, 20'000'000};
        while (!done.stop_requested()) {
          if (const int number = ::sigtimedwait(&held, nullptr, &kLookAgain); number > 0) {
            ::_exit(128 + number);
          }
        }
      }) {}

}  // namespace shoal
