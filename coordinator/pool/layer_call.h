// One layer's work on a pool: who is asked for what, what is done while replies are awaited, and
// who is asked next when one is late or lost. Not part of the public interface.
#ifndef SHOAL_COORDINATOR_POOL_LAYER_CALL_H_
#define SHOAL_COORDINATOR_POOL_LAYER_CALL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"
#include "coordinator/pool/cells.h"
#include "coordinator/pool/remote_node.h"
#include "expert_node/expert_backend.h"

namespace shoal {

// What a call works with; owned by the pool and alive during the call.
struct LayerCallPool {
  std::span<const std::unique_ptr<RemoteNode>> nodes;
  // A holder whose index is nodes.size() is `local`.
  std::span<const Cell> cells;
  uint64_t epoch = 0;
  ExpertBackend* local = nullptr;  // null where no cell has it as a holder
  const Clock& clock;
  absl::Duration node_wait;
  std::atomic<uint64_t>& next_id;
  // Whether another plan is in force by now.
  const std::atomic<bool>& superseded;
};

// What one node gave to the sums of a layer.
struct NodeAnswer {
  size_t node = 0;  // index in LayerCallPool::nodes
  std::vector<ExpertSlice> slices;
  std::span<const int64_t> sums;  // [num_rows, hidden_size]; the call's
};

// Used by one thread, once.
//
// The work is a tree. Its root stands for all that is wanted; the parts below a part do together
// what it was to do, each with another holder. A part is done when its own reply has come or all
// parts below it are done, whichever is first.
class LayerCall {
 public:
  // At most as many rows as every node takes.
  LayerCall(const LayerCallPool& pool, const ExpertBackend::Batch& batch,
            std::span<const ExpertSlice> slices, std::stop_token stop);
  // Replies that are still on their way will be dropped.
  ~LayerCall();
  LayerCall(const LayerCall&) = delete;
  LayerCall& operator=(const LayerCall&) = delete;

  // Has everything computed, and does `meanwhile`. PoolBackend::Execute's errors; and ABORTED where
  // nobody of this plan can go on at once and another plan is in force, or who could takes fewer rows
  // by now.
  absl::Status Run();

  // After Run returned OK: adds the sums to `out`, [num_rows, hidden_size].
  void Collect(std::span<int64_t> out) const;
  // After Run returned OK: what Collect adds, without what `local` computed.
  std::vector<NodeAnswer> Answers() const;

  // What the nodes said it cost them, and the time spent waiting for them; what `local` did counts
  // there.
  const ExpertLayerStats& cost() const { return cost_; }

 private:
  struct Letter;
  struct Mailbox;
  struct Part;
  using Reply = absl::StatusOr<std::unique_ptr<v1::LayerReply>>;

  void AppendAnswers(const Part& part, std::vector<NodeAnswer>& answers) const;
  std::vector<size_t> WantedCells() const;
  std::optional<size_t> ChooseHolder(size_t cell, const Part& above) const;
  int RankOf(size_t holder, const Cell& cell) const;
  // Makes parts below `above` for these cells, one a holder, and sets them to work.
  absl::Status Distribute(const std::vector<size_t>& cells, Part& above);
  bool Send(Part& part);
  absl::Status ComputeHere(Part& part);
  // Does what the caller gave to do, where it is not done yet.
  void DoMeanwhile();

  absl::Status WaitForMail();
  absl::Status OnReply(Letter& letter);
  absl::Status CheckTimes();
  absl::Status Hedge(Part& part, absl::Time now);
  absl::Status LookForHolder(Part& part, absl::Time now);
  // Until when an answer of the part's holder is waited for where nobody else can give it.
  absl::Time LastTime(const Part& part) const;
  // Whether the part's holder was alive after that time. One that fell silent is not stuck but lost,
  // and its link will say so.
  bool IsStuck(const Part& part) const;
  // The error for a part whose holder is stuck.
  absl::Status NoAnswer(const Part& part, absl::Time now) const;
  // Whether somebody else can be asked for all of the part.
  bool IsReplaceable(const Part& part) const;
  bool TooManyRows(const Part& part) const;
  absl::Time NextLook() const;
  absl::Status CheckPlanInForce() const;
  absl::Status CheckQuarantine(const Part& part) const;

  std::vector<ExpertSlice> SlicesOf(const Part& part) const;
  std::string Holders(const Part& part) const;

  const LayerCallPool& pool_;
  const ExpertBackend::Batch& batch_;
  const std::span<const ExpertSlice> slices_;
  const std::stop_token stop_;
  std::function<void()> meanwhile_;  // empty once it is done
  const std::shared_ptr<Mailbox> mailbox_;
  const std::unique_ptr<Part> root_;
  std::vector<Part*> parts_;  // of the tree, without the root
  ExpertLayerStats cost_;
  // Of the requests that were lost since the last reply: a node that comes back only to fail at the
  // same request again must not be asked for ever.
  absl::Time first_loss_ = absl::InfiniteFuture();
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_LAYER_CALL_H_
