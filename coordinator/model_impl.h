// What Model and Session share; not part of the public interface.
#ifndef SHOAL_COORDINATOR_MODEL_IMPL_H_
#define SHOAL_COORDINATOR_MODEL_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/container/container.h"
#include "common/sync/thread_pool.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/model.h"
#include "coordinator/model/session_state.h"
#include "coordinator/model/trunk_weights.h"
#include "coordinator/model/workspace.h"
#include "coordinator/pool/pool_backend.h"
#include "coordinator/session.h"
#include "expert_node/local_expert_backend.h"

namespace shoal {

// Constant after Model::Open, but for the count of sessions.
struct Model::Impl {
  std::unique_ptr<Container> container;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ThreadPool> pool;
  TrunkWeights weights;
  std::unique_ptr<ExpertBackend> experts;  // null for a model without MoE layers
  // Views of `experts`, or of a part of it; null where there is no such backend.
  LocalExpertBackend* local_experts = nullptr;
  PoolBackend* pool_experts = nullptr;
  EffectiveMode mode;  // without expert_io and nodes, which the backends know
  int max_sessions = 1;
  std::atomic<int> open_sessions{0};

  // Of `experts`.
  uint64_t Retractions() const { return experts == nullptr ? 0 : experts->Retractions(); }
};

// What a session remembers, with the identity of the container it belongs to.
struct SessionData {
  const ModelConfig* config = nullptr;
  const std::string* identity = nullptr;
  int64_t context_tokens = 0;
  SessionState state;
  std::vector<int32_t> tokens;
  // Of the last token; empty where there is none, or its logits were not computed.
  std::vector<float> logits;
};

struct Session::Impl : SessionData {
  explicit Impl(Model::Impl& owner) : model(owner), retractions(owner.Retractions()) {}
  ~Impl() { model.open_sessions.fetch_sub(1); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool IsRetracted() const { return retractions != model.Retractions(); }
  // ABORTED where it is.
  absl::Status CheckTrust() const;

  Model::Impl& model;
  Workspace workspace;
  uint64_t retractions;  // of the model, when this session was empty
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_MODEL_IMPL_H_
