// Finds nodes that compute wrong results: a share of their answers is computed a second time by
// somebody else. Not part of the public interface.
#ifndef SHOAL_COORDINATOR_POOL_AUDIT_H_
#define SHOAL_COORDINATOR_POOL_AUDIT_H_

#include <functional>
#include <span>
#include <stop_token>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/sync/mutex.h"
#include "coordinator/pool/layer_call.h"
#include "expert_node/expert_backend.h"

namespace shoal {

// Thread-safe.
class Audit {
 public:
  using Log = std::function<void(absl::string_view line)>;

  // Of `share` of the answers, above 0 and at most 1; which ones is chance that nobody can foresee.
  // `log` (may be empty) is told of every node that goes into quarantine, by any thread.
  Audit(double share, Log log);

  // Computes drawn answers again: in this process where `pool.local` is, else on other holders. Sums
  // that differ put a node into quarantine with the evidence: the one that differs from this
  // process; between nodes the one that answers the same question in two ways; and where each says
  // the same twice, all of them, because nobody can tell.
  //
  // Returns whether anybody was found, so that the sums of the call may be wrong. An answer that
  // nobody else can compute at the moment is not checked.
  //   CANCELLED  `stop` was requested
  absl::StatusOr<bool> FindsWrong(const LayerCallPool& pool, const ExpertBackend::Batch& batch,
                                  std::span<const NodeAnswer> answers, const std::stop_token& stop);

 private:
  bool IsDrawn();
  void Quarantine(RemoteNode& node, const std::string& evidence) const;

  const double share_;
  const Log log_;
  Mutex mutex_;
  absl::BitGen chance_ ABSL_GUARDED_BY(mutex_);

  class Case;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_POOL_AUDIT_H_
