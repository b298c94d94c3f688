#include "coordinator/generate.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/stop_matcher.h"

namespace shoal {
namespace {

absl::Status ValidateOptions(const Model& model, const GenerateOptions& options) {
  SHOAL_RETURN_IF_ERROR(ValidateSampling(options.sampling));
  if (options.max_tokens < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_tokens is ", options.max_tokens, "; it must be 0 or more"));
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty()) {
      return absl::InvalidArgumentError("a stop string is empty; leave it out instead");
    }
  }
  const int64_t vocab_size = model.config().vocab_size;
  for (const int32_t id : options.stop_ids) {
    if (id < 0 || id >= vocab_size) {
      return absl::InvalidArgumentError(absl::StrCat(
          "stop token ", id, " is outside the vocabulary; ids are 0 to ", vocab_size - 1));
    }
  }
  return absl::OkStatus();
}

// Not a number here means damaged weights or a bug: refuse to pick a token from it.
absl::Status CheckFinite(std::span<const float> logits, int64_t position) {
  const auto bad =
      std::find_if(logits.begin(), logits.end(), [](float logit) { return !std::isfinite(logit); });
  if (bad == logits.end()) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("the logit of token ", bad - logits.begin(),
                                          " after position ", position - 1, " is ", *bad,
                                          "; check the container with `shoal inspect --verify`"));
}

// Ids from here on stand for no token: a vocabulary may be padded beyond the tokenizer's.
size_t NumTokens(const Model& model) {
  auto count = static_cast<int32_t>(model.config().vocab_size);
  while (count > 0 && !model.tokenizer().TokenBytes(count - 1).ok()) {
    --count;
  }
  return static_cast<size_t>(count);
}

// One call of Generate.
class Generation {
 public:
  Generation(const Model& model, Session& session, const GenerateOptions& options,
             std::stop_token stop)
      : model_(model),
        session_(session),
        options_(options),
        stop_(std::move(stop)),
        sampler_(options.sampling),
        detokenizer_(model.tokenizer()),
        stop_matcher_(options.stop),
        num_tokens_(NumTokens(model)) {}

  // False where `stop` came first.
  absl::StatusOr<bool> Prefill(std::span<const int32_t> prompt,
                               const std::function<void(int64_t, int64_t)>& on_progress) {
    Session::ExtendOptions extend;
    extend.on_progress = on_progress;
    return Extend(prompt, extend);
  }

  absl::StatusOr<FinishReason> Decode(const std::function<bool(const TokenEvent&)>& on_token) {
    while (true) {
      if (result.ids.size() >= static_cast<size_t>(options_.max_tokens)) {
        return FinishReason::kLength;
      }
      if (session_.position() >= session_.context_tokens()) {
        return FinishReason::kContextFull;
      }
      if (stop_.stop_requested()) {
        return FinishReason::kCallerStopped;
      }
      SHOAL_RETURN_IF_ERROR(CheckFinite(session_.logits(), session_.position()));
      const int32_t id = sampler_.Sample(session_.logits().first(num_tokens_), session_.tokens());
      result.ids.push_back(id);
      SHOAL_ASSIGN_OR_RETURN(std::string text, detokenizer_.Push(id));
      text = stop_matcher_.Push(text);
      const std::optional<FinishReason> finish = FinishAfter(id);
      if (finish.has_value()) {
        text += FlushText();
      }
      result.text += text;
      const bool go_on = !on_token || on_token({.id = id, .text = text});
      SHOAL_ASSIGN_OR_RETURN(const bool extended, Extend({&id, 1}, {}));
      if (finish.has_value()) {
        return *finish;
      }
      if (!go_on || !extended) {
        return FinishReason::kCallerStopped;
      }
    }
  }

  // What is still held back, when the text is over.
  std::string FlushText() {
    std::string text = stop_matcher_.Push(detokenizer_.Flush());
    return text + stop_matcher_.Flush();
  }

  GenerateResult result;

 private:
  // False where `stop` came first.
  absl::StatusOr<bool> Extend(std::span<const int32_t> ids, Session::ExtendOptions extend) {
    extend.stop = stop_;
    extend.call = options_.call;
    const absl::Status status = session_.Extend(ids, extend);
    if (absl::IsCancelled(status) && stop_.stop_requested()) {
      return false;
    }
    SHOAL_RETURN_IF_ERROR(status);
    return true;
  }

  // Why the text ends with this token, the newest of result.ids; none where it goes on.
  std::optional<FinishReason> FinishAfter(int32_t id) const {
    const std::vector<int64_t>& ends = model_.config().eos_token_ids;
    if (!options_.ignore_end_of_text && std::find(ends.begin(), ends.end(), id) != ends.end()) {
      return FinishReason::kEndOfText;
    }
    const std::vector<int32_t>& stop_ids = options_.stop_ids;
    if (std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end()) {
      return FinishReason::kEndOfText;
    }
    if (stop_matcher_.found()) {
      return FinishReason::kStopString;
    }
    if (result.ids.size() >= static_cast<size_t>(options_.max_tokens)) {
      return FinishReason::kLength;
    }
    if (session_.position() + 1 >= session_.context_tokens()) {
      return FinishReason::kContextFull;
    }
    return std::nullopt;
  }

  const Model& model_;
  Session& session_;
  const GenerateOptions& options_;
  std::stop_token stop_;
  Sampler sampler_;
  StreamingDetokenizer detokenizer_;
  StopMatcher stop_matcher_;
  size_t num_tokens_;
};

// Tells tokens of an answer that may be computed several times, each of them once.
class TokenTeller {
 public:
  explicit TokenTeller(const std::function<bool(const TokenEvent&)>& on_token)
      : on_token_(on_token) {}

  // From now on what was told before is compared.
  void BeginAgain() { next_ = 0; }

  // False where the answer is to end: told so, or different from before.
  bool Tell(const TokenEvent& event) {
    const size_t index = next_++;
    if (index == told_.size()) {
      told_.push_back(event.id);
      return !on_token_ || on_token_(event);
    }
    if (event.id != told_[index]) {
      first_difference_ = index;
    }
    return !first_difference_;
  }

  std::optional<size_t> first_difference() const { return first_difference_; }

 private:
  const std::function<bool(const TokenEvent&)>& on_token_;
  std::vector<int32_t> told_;
  size_t next_ = 0;
  std::optional<size_t> first_difference_;
};

// Prefill and decode; `on_token` of Generate is the teller's.
absl::StatusOr<GenerateResult> Attempt(const Model& model, Session& session,
                                       std::span<const int32_t> prompt,
                                       const GenerateOptions& options, TokenTeller& teller,
                                       const std::stop_token& stop,
                                       const std::function<void(int64_t, int64_t)>& on_progress) {
  const Clock& clock = Clock::Real();
  const int64_t start_position = session.position();
  Generation generation(model, session, options, stop);
  GenerateResult& result = generation.result;

  const absl::Time start = clock.Now();
  bool prefilled = true;
  if (!prompt.empty()) {
    SHOAL_ASSIGN_OR_RETURN(prefilled, generation.Prefill(prompt, on_progress));
  }
  const absl::Time decode_start = clock.Now();
  result.prompt_tokens = session.position() - start_position;
  result.prefill_time = decode_start - start;
  result.finish_reason = FinishReason::kCallerStopped;
  if (prefilled) {
    SHOAL_ASSIGN_OR_RETURN(
        result.finish_reason,
        generation.Decode([&teller](const TokenEvent& event) { return teller.Tell(event); }));
    result.text += generation.FlushText();
    result.decode_time = clock.Now() - decode_start;
  }
  return std::move(generation.result);
}

}  // namespace

absl::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kEndOfText:
      return "end_of_text";
    case FinishReason::kStopString:
      return "stop";
    case FinishReason::kCallerStopped:
      return "cancelled";
    case FinishReason::kContextFull:
      return "context_full";
  }
  return "unknown";
}

absl::StatusOr<GenerateResult> Generate(const Model& model, Session& session,
                                        std::span<const int32_t> prompt,
                                        const GenerateOptions& options,
                                        const std::function<bool(const TokenEvent&)>& on_token,
                                        const std::stop_token& stop,
                                        const std::function<void(int64_t, int64_t)>& on_progress) {
  SHOAL_RETURN_IF_ERROR(ValidateOptions(model, options));
  const int64_t start_position = session.position();
  if (prompt.empty() && start_position == 0) {
    return absl::InvalidArgumentError("the prompt is empty; give at least one token");
  }
  if (prompt.empty() && session.logits().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the session has no logits after its ", start_position,
                     " tokens, because it was stopped inside a prompt; give the rest of the "
                     "prompt, at least one "
                     "token"));
  }
  // Kept for the case that all has to be computed again.
  std::vector<int32_t> context(session.tokens());
  context.insert(context.end(), prompt.begin(), prompt.end());
  TokenTeller teller(on_token);
  absl::StatusOr<GenerateResult> result =
      Attempt(model, session, prompt, options, teller, stop, on_progress);
  while (!result.ok() && session.IsRetracted()) {
    session.Reset();
    teller.BeginAgain();
    result = Attempt(model, session, context, options, teller, stop, {});
    if (const std::optional<size_t> wrong = teller.first_difference()) {
      return absl::AbortedError(
          absl::StrCat("token ", *wrong,
                       " of the answer, which was given already, is wrong: a node "
                       "of the pool computed wrong results and is in quarantine now. Ask again"));
    }
    if (result.ok()) {
      result->prompt_tokens -= start_position;
    }
  }
  return result;
}

}  // namespace shoal
