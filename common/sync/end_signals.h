// SIGTERM, SIGINT and SIGHUP (the terminal is gone) as something to wait for, in programs that serve until they are
// told to end.
#ifndef SHOAL_COMMON_SYNC_END_SIGNALS_H_
#define SHOAL_COMMON_SYNC_END_SIGNALS_H_

#include <signal.h>

#include <thread>

namespace shoal {

// At most one at a time in a process, made by the main thread before it starts any other: the
// signals are kept from every thread that is started later.
class EndSignals {
 public:
  // A signal that was ignored when the program started (nohup) stays ignored.
  EndSignals();

  // Blocks until one comes. From then on the next has its usual effect: it ends the process at
  // once.
  void Wait();

  // Those that are kept back, for who waits for something else too.
  const sigset_t& held() const { return held_; }

 private:
  sigset_t held_;
};

// While it lives, such a signal ends the process at once, with 128 and its number: for the time
// before there is anything to end well.
class EndAtOnce {
 public:
  // `signals` outlives it, and nobody waits for them meanwhile.
  explicit EndAtOnce(const EndSignals& signals);

 private:
  std::jthread watcher_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_SYNC_END_SIGNALS_H_
