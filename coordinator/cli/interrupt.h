// Ctrl-C as a request to stop.
#ifndef SHOAL_COORDINATOR_CLI_INTERRUPT_H_
#define SHOAL_COORDINATOR_CLI_INTERRUPT_H_

#include <memory>
#include <stop_token>

#include "absl/status/statusor.h"

namespace shoal {

// While it lives, the first SIGINT requests a stop and the next one before Rearm ends the process
// at once with exit code 130 (a disk that hangs must not hold the user). Where SIGINT was ignored
// when the program started (nohup, background jobs of scripts) it stays ignored. At most one at a
// time in a process.
class Interrupt {
 public:
  // UNAVAILABLE where the system grants no descriptor.
  static absl::StatusOr<std::unique_ptr<Interrupt>> Install();
  ~Interrupt();

  // Of the work that runs now; requested at Ctrl-C.
  std::stop_token token() const;
  bool requested() const { return token().stop_requested(); }
  // Forgets a Ctrl-C, so that the next piece of work can run.
  void Rearm();

 private:
  struct Impl;
  explicit Interrupt(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_INTERRUPT_H_
