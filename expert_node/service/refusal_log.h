// Tells people who was refused, without letting strangers fill the disk with it.
#ifndef SHOAL_EXPERT_NODE_SERVICE_REFUSAL_LOG_H_
#define SHOAL_EXPERT_NODE_SERVICE_REFUSAL_LOG_H_

#include <functional>

#include "absl/strings/string_view.h"
#include "common/log/log_limit.h"
#include "common/sync/clock.h"

namespace shoal {

// Thread-safe.
class RefusalLog {
 public:
  using Write = std::function<void(absl::string_view line)>;

  // `write` gets a line without its end, from any thread, one at a time; at most `lines_a_minute`
  // (1 or more) of them, and then how many were left out. `clock` outlives the log.
  RefusalLog(Write write, int lines_a_minute, const Clock& clock);

  // What cannot be printed is written as escapes: it may come from a stranger.
  void Add(absl::string_view line);
  // The same for a line about anything else.
  void Note(absl::string_view line);

 private:
  LogLimit limit_;
};

}  // namespace shoal

#endif  // SHOAL_EXPERT_NODE_SERVICE_REFUSAL_LOG_H_
