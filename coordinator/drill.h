// Whether a pool gives the same answer while something is done to it, and how long it stops.
#ifndef SHOAL_COORDINATOR_DRILL_H_
#define SHOAL_COORDINATOR_DRILL_H_

#include <cstdint>
#include <functional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/model.h"
#include "coordinator/session.h"

namespace shoal {

struct DrillOptions {
  int64_t tokens = 200;  // of each answer
  // Done once, in the second answer, before the token with this index is computed; an error ends
  // the drill. Its own time counts for no token.
  std::function<absl::Status()> strike;
  // Called after each token: answer 0 or 1, the token's index, and the time since the one before
  // (of the first: since the answer was begun).
  std::function<void(int answer, int64_t index, absl::Duration time)> on_token;
};

struct DrillReport {
  bool same_tokens = false;
  bool same_logits = false;      // of every token, to the bit
  absl::Duration steady_before;  // median time of a token before the strike
  absl::Duration longest;        // time of a token after it
  absl::Duration steady_after;   // median of the last quarter

  // How much longer the longest token took than one does at the slower of the two steady rates.
  absl::Duration Gap() const;
};

inline constexpr int64_t kLeastDrillTokens = 8;
inline constexpr int64_t kMostDrillTokens = 4096;

// Index of the first token after the strike: a quarter of them come before it.
int64_t StrikeIndex(int64_t tokens);

// Continues a fixed text twice, always with the most likely token, and strikes in the second
// answer. `session` is reset and left with the second answer.
//   INVALID_ARGUMENT    tokens is not within kLeastDrillTokens and kMostDrillTokens
//   RESOURCE_EXHAUSTED  the context is too short for so many
//   CANCELLED           `stop`
//   and Generate's and the strike's errors
absl::StatusOr<DrillReport> RunDrill(const Model& model, Session& session,
                                     const DrillOptions& options, const std::stop_token& stop);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_DRILL_H_
