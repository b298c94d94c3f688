// A node of a pool with everything the coordinator keeps about it. Not part of the public
// interface.
#ifndef SHOAL_COORDINATOR_POOL_REMOTE_NODE_H_
#define SHOAL_COORDINATOR_POOL_REMOTE_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/container/expert_slice.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"
#include "coordinator/pool/node_health.h"
#include "coordinator/pool/node_link.h"
#include "coordinator/pool/pool_backend.h"
#include "coordinator/pool/pool_plan.h"

namespace shoal {

// Thread-safe. `clock` outlives it.
class RemoteNode {
 public:
  // `on_change` as NodeLink's, after the node has looked at the change itself. `log` (may be empty) is told, by
  // any thread, when a node that was there is lost or refused and when it is there again.
  RemoteNode(PoolNode planned, NodeLink::Options link, const v1::Hello& hello,
             const ExpertSlice& whole, std::function<void()> on_change,
             std::function<void(absl::string_view line)> log, const Clock& clock);
  ~RemoteNode();

  const std::string& address() const { return planned_.address; }
  // As the user named it: parts that nobody wrote are empty.
  const PoolNode& planned() const { return planned_; }
  // Its own word once it was welcomed, until then the user's.
  std::string name() const;
  NodeLink& link() { return *link_; }

  // Why the node cannot be used, though it answered; OK where it can or has not answered.
  absl::Status Refusal() const;
  NodeState state() const;
  std::vector<ExpertSlice> slices() const;
  int64_t max_rows() const;

  // Opens, pings or breaks the link, whatever is due. Called about once a second.
  void Tend();

  absl::Duration DeadlineFor(int64_t num_rows) const;
  // A reply came `latency` after its request was sent, which had the node so much work.
  void OnReply(int64_t num_rows, absl::Duration latency, const v1::LayerCost& cost);
  void OnMissedDeadline();
  // It answered with an error.
  void OnFailure();
  PoolNodeStatus Status() const;
  // Whether its operator wants it left alone. Taking it back ends a quarantine too.
  void SetDrained(bool drained);
  bool drained() const;
  // One of its answers was computed by somebody else too.
  void OnAudit();
  // It computed something wrong. The first evidence is kept.
  void Quarantine(const std::string& evidence);
  // What Quarantine was told; empty where it was not called.
  std::string evidence() const;

 private:
  void OnLinkChange();
  // The line for the log about where the node is now; empty where there is nothing new to say.
  std::string News(bool open, const absl::Status& error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  NodeState StateWith(bool open) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks what the node says of itself against what was seen before and the plan.
  absl::Status Inspect(const v1::DescribeReply& node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PoolNode planned_;
  const ExpertSlice whole_;
  const std::function<void()> on_change_;
  const std::function<void(absl::string_view line)> log_;
  const Clock& clock_;
  mutable Mutex mutex_;
  std::string name_ ABSL_GUARDED_BY(mutex_);
  std::vector<ExpertSlice> slices_ ABSL_GUARDED_BY(mutex_);
  int64_t max_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  NodeHealth health_ ABSL_GUARDED_BY(mutex_);
  LayerDeadline deadline_ ABSL_GUARDED_BY(mutex_);
  bool was_open_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_there_ ABSL_GUARDED_BY(mutex_) = false;  // open, and not refused, at some time
  std::string trouble_ ABSL_GUARDED_BY(mutex_);  // what the log was told last; empty: it is there
  bool drained_ ABSL_GUARDED_BY(mutex_) = false;
  std::string evidence_ ABSL_GUARDED_BY(mutex_);  // empty: not in quarantine
  int64_t requests_ ABSL_GUARDED_BY(mutex_) = 0;
  NodeWork work_ ABSL_GUARDED_BY(mutex_);
  int64_t hedges_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t losses_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t audits_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<NodeLink> link_;  // last: its callbacks use what is above
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_REMOTE_NODE_H_
