// Text generation on a session: sampling, stop conditions, text pieces as they become complete.
#ifndef SHOAL_COORDINATOR_GENERATE_H_
#define SHOAL_COORDINATOR_GENERATE_H_

#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/model.h"
#include "coordinator/sampler.h"
#include "coordinator/session.h"

namespace shoal {

struct GenerateOptions {
  SamplingOptions sampling;
  int64_t max_tokens = 256;
  // Strings that end the text, also across token borders; not part of it.
  std::vector<std::string> stop;
  std::vector<int32_t> stop_ids;    // tokens that end it, besides the model's own end tokens
  bool ignore_end_of_text = false;  // do not stop at the model's end tokens
  uint64_t call = 0;                // ExpertBackend::Batch's, of all that is computed
};

enum class FinishReason { kLength, kEndOfText, kStopString, kCallerStopped, kContextFull };
// "length", "end_of_text", "stop", "cancelled", "context_full".
absl::string_view FinishReasonName(FinishReason reason);

struct GenerateResult {
  std::vector<int32_t> ids;  // generated, the end token included
  std::string text;
  FinishReason finish_reason = FinishReason::kLength;
  int64_t prompt_tokens = 0;  // of the prompt, computed; fewer than given where stopped in prefill
  absl::Duration prefill_time;
  absl::Duration decode_time;
};

// One generated token. `text` is what became complete with it and is certain not to be part of a
// stop string; maybe empty.
struct TokenEvent {
  int32_t id = 0;
  absl::string_view text;
};

// Runs `prompt` on the session, then generates until a stop condition. `on_token` (may be empty) is
// called for every token from this thread; false ends with kCallerStopped, as does `stop` (within
// one layer). What was held back then is in `result.text` though no event carried it. A stop token
// of `stop_ids` ends with kEndOfText.
//
// The session keeps prompt and generated tokens, the end token included, so that a chat goes on
// from there; after kCallerStopped it may lack the rest of the prompt or the last generated token
// (Session::tokens tells). `on_progress` as in Session::ExtendOptions. Ids of a padded vocabulary
// that stand for no token are never chosen.
//
// Where a node of the pool is found to compute wrong results (Session::IsRetracted), everything is
// computed again from the session's first token. Tokens that on_token had stay as they are if they
// come out the same, which is checked; times are of the last computation.
//
// An empty prompt goes on from the session's last token and needs its logits, which a session lacks
// after a stop inside a prompt and after loading a file saved then.
//   INVALID_ARGUMENT     bad options, or an empty prompt on an empty session
//   FAILED_PRECONDITION  an empty prompt on a session without logits; give the rest of the prompt
//   INTERNAL             a logit is not finite
//   ABORTED              a token that on_token had before came out differently; names it
//   and Session::Extend's errors
absl::StatusOr<GenerateResult> Generate(
    const Model& model, Session& session, std::span<const int32_t> prompt,
    const GenerateOptions& options, const std::function<bool(const TokenEvent&)>& on_token,
    const std::stop_token& stop = {},
    const std::function<void(int64_t, int64_t)>& on_progress = {});

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_GENERATE_H_
