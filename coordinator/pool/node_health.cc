#include "coordinator/pool/node_health.h"

#include <algorithm>
#include <vector>

namespace shoal {
namespace {

absl::Duration Percentile(const std::deque<absl::Duration>& samples, size_t percent) {
  std::vector<absl::Duration> sorted(samples.begin(), samples.end());
  const size_t rank = (sorted.size() * percent + 99) / 100 - 1;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(rank), sorted.end());
  return sorted[rank];
}

}  // namespace

absl::string_view NodeStateName(NodeState state) {
  switch (state) {
    case NodeState::kLive:
      return "live";
    case NodeState::kSuspect:
      return "suspect";
    case NodeState::kDrained:
      return "drained";
    case NodeState::kQuarantined:
      return "quarantined";
    case NodeState::kLost:
      return "lost";
  }
  return "unknown";
}

void NodeHealth::OnOpen(absl::Time now) {
  open_ = true;
  if (fell_) {
    trusted_from_ = now + probation_;
  }
}

void NodeHealth::OnLost(absl::Time now) {
  if (open_) {
    open_ = false;
    Fall(now);
  }
}

void NodeHealth::OnMissedDeadline(absl::Time now) {
  if (open_ && now >= trusted_from_) {
    Fall(now);
    trusted_from_ = now + probation_;
  }
}

NodeState NodeHealth::StateAt(absl::Time now) const {
  if (!open_) {
    return NodeState::kLost;
  }
  return now < trusted_from_ ? NodeState::kSuspect : NodeState::kLive;
}

void NodeHealth::Fall(absl::Time now) {
  const bool again = fell_ && now - last_fall_ < kForgiveAfter;
  probation_ = again ? std::min(probation_ * 2, kLongestProbation) : kProbation;
  fell_ = true;
  last_fall_ = now;
}

void LayerDeadline::Add(int64_t num_rows, absl::Duration latency) {
  std::deque<absl::Duration>& samples = num_rows == 1 ? single_ : per_row_;
  samples.push_back(latency / num_rows);
  if (samples.size() > kSamples) {
    samples.pop_front();
  }
}

absl::Duration LayerDeadline::For(int64_t num_rows) const {
  const std::deque<absl::Duration>& samples = num_rows == 1 ? single_ : per_row_;
  if (samples.empty()) {
    return kUnknown;
  }
  return kSlack + 4 * num_rows * Percentile(samples, 99);
}

absl::Duration LayerDeadline::SingleRowPercentile(size_t percent) const {
  return single_.empty() ? absl::ZeroDuration() : Percentile(single_, percent);
}

}  // namespace shoal
