#include "coordinator/perplexity.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "coordinator/sampler.h"

namespace shoal {
namespace {

// Every id has a token, so that no work is lost to one at the end of a text.
absl::Status CheckTokens(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  for (const int32_t id : ids) {
    SHOAL_RETURN_IF_ERROR(tokenizer.TokenBytes(id).status());
  }
  return absl::OkStatus();
}

// Adds the prediction of `id` from `logits`.
absl::Status AddPrediction(const Model& model, std::span<const float> logits, int32_t id,
                           TextScore& score) {
  SHOAL_ASSIGN_OR_RETURN(const absl::string_view bytes, model.tokenizer().TokenBytes(id));
  score.nll_sum -= LogProbability(logits, id);
  score.bytes += bytes.size();
  ++score.predictions;
  return absl::OkStatus();
}

}  // namespace

double TextScore::nats_per_token() const { return nll_sum / static_cast<double>(predictions); }

double TextScore::perplexity() const { return std::exp(nats_per_token()); }

double TextScore::bits_per_byte() const {
  return nll_sum / std::numbers::ln2 / static_cast<double>(bytes);
}

absl::StatusOr<TextScore> ScoreTokens(const Model& model, Session& session,
                                      std::span<const int32_t> ids, const ScoreOptions& options) {
  if (ids.empty() || options.window_tokens < 0) {
    return absl::InvalidArgumentError(
        ids.empty() ? std::string("the text has no tokens")
                    : absl::StrCat("window_tokens is ", options.window_tokens,
                                   "; it must be 0 (one context) or positive"));
  }
  SHOAL_RETURN_IF_ERROR(CheckTokens(model.tokenizer(), ids));
  const auto num_ids = static_cast<int64_t>(ids.size());
  const bool one_context = options.window_tokens == 0;
  // The last token of the last window has nothing to predict.
  const int64_t inputs = one_context ? num_ids : num_ids - 1;
  const int64_t window = one_context ? inputs : options.window_tokens;
  TextScore score;
  for (int64_t begin = 0; begin < inputs; begin += window) {
    const int64_t count = std::min(window, inputs - begin);
    Session::ExtendOptions extend;
    extend.observer = options.observer;
    extend.stop = options.stop;
    extend.on_logits = [&](int64_t position, std::span<const float> logits) {
      const int64_t target = begin + position + 1;
      if (target < num_ids) {
        SHOAL_RETURN_IF_ERROR(AddPrediction(model, logits, ids[target], score));
      }
      return options.on_logits ? options.on_logits(logits) : absl::OkStatus();
    };
    extend.on_progress = [&](int64_t done, int64_t) {
      if (options.on_progress) {
        options.on_progress(begin + done, inputs);
      }
    };
    session.Reset();
    SHOAL_RETURN_IF_ERROR(session.Extend(ids.subspan(begin, count), extend));
  }
  return score;
}

}  // namespace shoal
