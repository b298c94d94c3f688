// The nodes of one plan, connected, and the experts cut into cells among them. A pool that changes
// its plan has two of these for a while. Not part of the public interface.
#ifndef SHOAL_COORDINATOR_POOL_POOL_LAYOUT_H_
#define SHOAL_COORDINATOR_POOL_POOL_LAYOUT_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/container/manifest.h"
#include "common/sync/clock.h"
#include "common/sync/mutex.h"
#include "coordinator/pool/cells.h"
#include "coordinator/pool/pool_plan.h"
#include "coordinator/pool/remote_node.h"
#include "expert_node/expert_model.h"
#include "kernels/expert_arithmetic.h"

namespace shoal {

// Thread-safe.
class PoolLayout {
 public:
  struct Options {
    absl::Duration connect_wait;  // for all nodes together
    absl::Duration grace_wait;    // once the others do without; not with all_must_answer
    // This process holds everything: it is a holder of every cell, and the last but where the plan
    // says that it computes it.
    bool has_local = false;
    bool all_must_answer = false;
    bool audits = false;  // somebody else must be able to compute what a node does
    ExpertArithmetic arithmetic = ExpertArithmetic::kExact;
    SecurityPtr own;                                  // as ChannelSecurity's
    std::function<void(absl::string_view line)> log;  // as RemoteNode's
    std::stop_token stop;                             // ends the wait
  };

  // Connects, compares terms and holdings, and cuts the experts. PoolBackend::Open's errors;
  // CANCELLED at `stop`; and with all_must_answer FAILED_PRECONDITION where one is silent, naming it.
  static absl::StatusOr<std::unique_ptr<PoolLayout>> Connect(const Manifest& manifest,
                                                             PoolPlan plan, const Options& options,
                                                             const Clock& clock);

  const PoolPlan& plan() const { return plan_; }
  std::span<const std::unique_ptr<RemoteNode>> nodes() const { return nodes_; }
  // As they are computed now: by the plan while every node is live, and shared out anew among those
  // that are while some are not. A holder whose index is nodes().size() is the process itself.
  std::shared_ptr<const std::vector<Cell>> Cells() const;
  // The largest request that every node takes.
  int64_t RowsAtOnce() const;
  // Opens, pings or breaks the links, whatever is due. Called about once a second.
  void Tend();
  // Another plan is in force: calls of this one that cannot go on should give up.
  void Supersede() { superseded_ = true; }
  const std::atomic<bool>& superseded() const { return superseded_; }
  // Null where no node has that name.
  RemoteNode* Find(absl::string_view name) const;
  // Drains those whose names are drained in `other`, and puts those in quarantine that are there.
  void KeepVerdicts(const PoolLayout& other);
  // That others can do all that this node does.
  //   FAILED_PRECONDITION  names a slice that nobody else holds who answers
  absl::Status CheckDispensable(const RemoteNode& node) const;

 private:
  PoolLayout(const Manifest& manifest, PoolPlan plan, const Clock& clock);
  void Dial(const Manifest& manifest, const Options& options);
  absl::Status AwaitAnswers(const Options& options);
  bool AllAnswered() const;
  // Those that answered, and this process where it holds everything, hold each unit.
  bool AnswersCover(bool has_local) const;
  absl::Status CheckNames() const;
  absl::Status CutCells(bool has_local);
  absl::Status CheckCoverage() const;
  absl::Status CheckAuditable() const;
  std::vector<std::string> Silent() const;

  const PoolPlan plan_;
  const ExpertSizes sizes_;
  const Clock& clock_;
  std::atomic<bool> superseded_{false};
  mutable Mutex mutex_;
  CondVar changed_;          // a link
  std::vector<Cell> cells_;  // while every node is live
  // Cells() for those who could be asked when it was last called.
  mutable std::vector<bool> asked_ ABSL_GUARDED_BY(mutex_);
  mutable std::shared_ptr<const std::vector<Cell>> shared_out_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RemoteNode>> nodes_;  // last: their callbacks use what is above
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_POOL_LAYOUT_H_
