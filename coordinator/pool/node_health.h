// What the coordinator thinks of a node: fast to fall, slow to rise.
#ifndef SHOAL_COORDINATOR_POOL_NODE_HEALTH_H_
#define SHOAL_COORDINATOR_POOL_NODE_HEALTH_H_

#include <cstdint>
#include <deque>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace shoal {

// kLive: asked first. kSuspect: answers, but missed a deadline or was gone a moment ago; asked only
// for what nobody else has. kDrained: well, but its operator wants it left alone; asked last of all.
// kQuarantined: it computed something wrong; never asked until its operator takes it back. kLost: no
// stream.
enum class NodeState { kLive, kSuspect, kDrained, kQuarantined, kLost };
inline constexpr NodeState kNodeStates[] = {NodeState::kLive, NodeState::kSuspect,
                                            NodeState::kDrained, NodeState::kQuarantined,
                                            NodeState::kLost};
// Whether it may be asked for anything at all.
constexpr bool CanBeAsked(NodeState state) {
  return state != NodeState::kLost && state != NodeState::kQuarantined;
}
// "live", "suspect", "drained", "quarantined", "lost"
absl::string_view NodeStateName(NodeState state);

// Not thread-safe. Times come from one Clock and do not go back.
class NodeHealth {
 public:
  // The stream is open. The first time a node is live at once, later after its probation.
  void OnOpen(absl::Time now);
  // The stream is gone.
  void OnLost(absl::Time now);
  // A reply did not come by its deadline.
  void OnMissedDeadline(absl::Time now);

  NodeState StateAt(absl::Time now) const;

  // Probation after a fall: doubles with every fall that follows the last within kForgiveAfter.
  static constexpr absl::Duration kProbation = absl::Seconds(2);
  static constexpr absl::Duration kLongestProbation = absl::Minutes(1);
  static constexpr absl::Duration kForgiveAfter = absl::Minutes(5);

 private:
  void Fall(absl::Time now);

  bool open_ = false;
  bool fell_ = false;  // ever
  absl::Duration probation_ = absl::ZeroDuration();
  absl::Time last_fall_ = absl::InfinitePast();
  absl::Time trusted_from_ = absl::InfinitePast();
};

// How long a node may take for a layer before the holder of a copy is asked too. Not thread-safe.
class LayerDeadline {
 public:
  // A reply for `num_rows` rows came `latency` after the request was sent.
  void Add(int64_t num_rows, absl::Duration latency);
  // kSlack and four times the 99th percentile of the last kSamples replies of the same kind (one
  // row, or the time a row of more), or kUnknown while there are none.
  absl::Duration For(int64_t num_rows) const;
  // Of the last kSamples replies for one row: the smallest latency that `percent` of them do not
  // exceed; zero while there are none. `percent` is from 1 to 100.
  absl::Duration SingleRowPercentile(size_t percent) const;

  static constexpr size_t kSamples = 200;
  static constexpr absl::Duration kSlack = absl::Milliseconds(50);
  static constexpr absl::Duration kUnknown = absl::Seconds(5);

 private:
  std::deque<absl::Duration> single_;   // of one row
  std::deque<absl::Duration> per_row_;  // of several, divided by their number
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_NODE_HEALTH_H_
