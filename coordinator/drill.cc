#include "coordinator/drill.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/generate.h"

namespace shoal {
namespace {

constexpr absl::string_view kText = "Once upon a time";

struct Answer {
  std::vector<int32_t> ids;
  Sha256Digest logits;  // of all tokens
  std::vector<absl::Duration> times;
};

// One answer; `before` is called before each token but the first is computed.
absl::StatusOr<Answer> RunAnswer(
    const Model& model, Session& session, int64_t tokens,
    const std::function<absl::Status(int64_t index)>& before,
    const std::function<void(int64_t index, absl::Duration time)>& on_token,
    const std::stop_token& stop) {
  const Clock& clock = Clock::Real();
  GenerateOptions options;
  options.max_tokens = tokens;
  options.ignore_end_of_text = true;
  Answer answer;
  Sha256 logits;
  absl::Status status;
  absl::Time last = clock.Now();
  session.Reset();
  SHOAL_ASSIGN_OR_RETURN(const GenerateResult result,
                         Generate(
                             model, session, model.tokenizer().EncodeText(kText), options,
                             [&](const TokenEvent&) {
                               const absl::Time now = clock.Now();
                               const auto index = static_cast<int64_t>(answer.times.size());
                               answer.times.push_back(now - last);
                               logits.Update(std::as_bytes(session.logits()));
                               on_token(index, now - last);
                               status = index + 1 < tokens ? before(index + 1) : absl::OkStatus();
                               last = clock.Now();
                               return status.ok();
                             },
                             stop));
  SHOAL_RETURN_IF_ERROR(status);
  if (stop.stop_requested()) {
    return absl::CancelledError("the drill was cancelled");
  }
  answer.ids = result.ids;
  answer.logits = logits.Finish();
  return answer;
}

absl::Duration Median(std::span<const absl::Duration> times) {
  std::vector<absl::Duration> sorted(times.begin(), times.end());
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

absl::Status CheckTokens(int64_t tokens, const std::vector<int32_t>& prompt,
                         const Session& session) {
  if (tokens < kLeastDrillTokens || tokens > kMostDrillTokens) {
    return absl::InvalidArgumentError(absl::StrCat("tokens: ", tokens, "; ", kLeastDrillTokens,
                                                   " to ", kMostDrillTokens, " are accepted"));
  }
  if (std::ssize(prompt) + tokens > session.context_tokens()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a drill of ", tokens, " tokens does not fit into a context of ",
                     session.context_tokens(), "; ask for fewer, or serve with a larger --ctx"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Duration DrillReport::Gap() const {
  return std::max(longest - std::max(steady_before, steady_after), absl::ZeroDuration());
}

int64_t StrikeIndex(int64_t tokens) { return tokens / 4; }

absl::StatusOr<DrillReport> RunDrill(const Model& model, Session& session,
                                     const DrillOptions& options, const std::stop_token& stop) {
  SHOAL_RETURN_IF_ERROR(CheckTokens(options.tokens, model.tokenizer().EncodeText(kText), session));
  const int64_t strike_index = StrikeIndex(options.tokens);
  Answer answers[2];
  for (int i = 0; i < 2; ++i) {
    SHOAL_ASSIGN_OR_RETURN(
        answers[i],
        RunAnswer(
            model, session, options.tokens,
            [&](int64_t index) {
              return i == 1 && index == strike_index ? options.strike() : absl::OkStatus();
            },
            [&](int64_t index, absl::Duration time) { options.on_token(i, index, time); }, stop));
  }
  DrillReport report;
  report.same_tokens = answers[0].ids == answers[1].ids;
  report.same_logits = answers[0].logits == answers[1].logits;
  // The first token's time is the prompt's.
  const std::span<const absl::Duration> times(answers[1].times);
  const auto struck = static_cast<size_t>(strike_index);
  report.steady_before = Median(times.subspan(1, struck - 1));
  report.longest = *std::max_element(times.begin() + strike_index, times.end());
  report.steady_after = Median(times.last(times.size() / 4));
  return report;
}

}  // namespace shoal
