// One conversation with one model: its tokens, its KV cache and delta-attention state, and the
// forward pass over them.
#ifndef SHOAL_COORDINATOR_SESSION_H_
#define SHOAL_COORDINATOR_SESSION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace shoal {

class Model;

// Sees intermediate values of a forward pass; for checks against references. Called from the thread
// that runs Extend, in order of layers, once a chunk. All arrays are row-major and valid during the
// call only.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  // Residual stream [num_rows, hidden_size]. `name`: "embedding", "after_mixer.L", "hidden.L" or
  // "final_norm".
  virtual void OnHidden(const std::string& name, int64_t first_position, int64_t num_rows,
                        std::span<const float> values) = 0;
  // Routing of an MoE layer, both [num_rows, num_experts_per_token], best choice first.
  virtual void OnRouting(int64_t layer, int64_t first_position, int64_t num_rows,
                         std::span<const int32_t> expert_ids,
                         std::span<const float> expert_weights) = 0;
};

// Not thread-safe: one call at a time. Sessions of one model may run from different threads at the
// same time. The model outlives its sessions.
class Session {
 public:
  struct ExtendOptions {
    // Gets logits [vocab_size] of every new position, in order; absent: only the last position's
    // are computed.
    std::function<absl::Status(int64_t position, std::span<const float> logits)> on_logits;
    // Called after each prefill chunk with tokens done and in all.
    std::function<void(int64_t done, int64_t total)> on_progress;
    ForwardObserver* observer = nullptr;
    std::stop_token stop;
    // Rows computed together; 0: as the plan chose. Never changes a bit of the result.
    int64_t chunk_tokens = 0;
    // ExpertBackend::Batch's.
    uint64_t call = 0;
  };

  ~Session();

  // Runs `ids` after what the session already holds. On success logits() are those of the last
  // position. On error or stop (CANCELLED) the session holds the whole chunks that were finished;
  // tokens() tells which.
  //   OUT_OF_RANGE        an id outside the vocabulary (with the range); nothing was run
  //   RESOURCE_EXHAUSTED  more tokens than the context holds; nothing was run
  //   ABORTED             IsRetracted
  //   and ExpertBackend::Execute's errors
  absl::Status Extend(std::span<const int32_t> ids, const ExtendOptions& options);
  absl::Status Extend(std::span<const int32_t> ids) { return Extend(ids, ExtendOptions()); }

  // Logits [vocab_size] after the last token; empty in a new session.
  std::span<const float> logits() const;
  const std::vector<int32_t>& tokens() const;
  int64_t position() const { return static_cast<int64_t>(tokens().size()); }
  int64_t context_tokens() const;

  // Whether what the session holds may come from a node that was found wrong since (PoolBackend's
  // audit). It is of no use then but for its tokens: Reset, and run them again.
  bool IsRetracted() const;

  // Forgets everything.
  void Reset();

  // Writes the whole state (tokens, KV cache, delta and convolution state, logits) as one
  // versioned, digested file, atomically; Load replaces this session's state by a file's.
  // docs/format.md describes the file. A file that Load refuses leaves the session as it was; where
  // the file fails to be read after it was checked, the session is Reset().
  //   FAILED_PRECONDITION  the file is of another container (both identities are named)
  //   RESOURCE_EXHAUSTED   it holds more tokens than this session's context
  //   DATA_LOSS            digest, size or a field is damaged;  UNIMPLEMENTED  another version
  //   ABORTED              Save: IsRetracted
  absl::Status Save(const std::string& path) const;
  absl::Status Load(const std::string& path);

 private:
  friend class Model;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SESSION_H_
