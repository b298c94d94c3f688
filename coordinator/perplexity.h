// How well a model predicts a text.
#ifndef SHOAL_COORDINATOR_PERPLEXITY_H_
#define SHOAL_COORDINATOR_PERPLEXITY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>

#include "absl/status/statusor.h"
#include "coordinator/model.h"
#include "coordinator/session.h"

namespace shoal {

struct ScoreOptions {
  // 0: all tokens in one context, token i+1 predicted from tokens 0..i. W: independent contexts of
  // W tokens; the one that begins at b holds tokens b..b+W-1 and predicts tokens b+1..b+W, so that
  // every token but the first is predicted once.
  int64_t window_tokens = 0;
  // Gets the logits [vocab_size] of every position computed, in order: all tokens in one context,
  // all but the last one in windows. May be empty.
  std::function<absl::Status(std::span<const float> logits)> on_logits;
  ForwardObserver* observer = nullptr;
  std::function<void(int64_t done, int64_t total)> on_progress;  // in tokens; may be empty
  std::stop_token stop;
};

struct TextScore {
  int64_t predictions = 0;
  uint64_t bytes = 0;  // of the predicted tokens
  double nll_sum = 0;  // negative log likelihood, in nats

  // All three are REQUIRES: predictions > 0.
  double nats_per_token() const;
  double perplexity() const;
  double bits_per_byte() const;
};

// Runs `ids` on `session`, which is reset first. After one context the session holds all of them
// and logits() are those after the last. Before anything is run: INVALID_ARGUMENT for a negative
// window or no ids, OUT_OF_RANGE for an id without a token. Then the errors of Session::Extend and
// `on_logits`.
absl::StatusOr<TextScore> ScoreTokens(const Model& model, Session& session,
                                      std::span<const int32_t> ids, const ScoreOptions& options);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_PERPLEXITY_H_
