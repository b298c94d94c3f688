// Finds stop strings in a text that arrives in pieces.
#ifndef SHOAL_COORDINATOR_STOP_MATCHER_H_
#define SHOAL_COORDINATOR_STOP_MATCHER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace shoal {

// Text that could be the beginning of a stop string is held back until it is decided. Where the
// pieces were cut never changes what comes out: the stop string that is complete first ends the
// text (of two that end together the longer one), and nothing from its beginning on is released.
class StopMatcher {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Takes the next piece and returns the text that is now certain not to belong to a stop string,
  // maybe empty. After a match everything is swallowed.
  std::string Push(absl::string_view piece);
  // The text held back, at the end of the input; empty after a match.
  std::string Flush();

  bool found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_STOP_MATCHER_H_
