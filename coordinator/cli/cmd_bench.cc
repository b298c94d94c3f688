#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/sampler.h"

namespace shoal {
namespace {

// One phase of the measurement.
struct Phase {
  int64_t num_tokens = 0;
  absl::Duration time;
  ExpertLayerStats experts;
  std::vector<absl::Duration> token_times;  // of single tokens, sorted; empty for prefill
};

// The smallest time that a share of `percent` of the tokens does not exceed.
absl::Duration Percentile(const std::vector<absl::Duration>& sorted, int64_t percent) {
  if (sorted.empty()) {
    return absl::ZeroDuration();
  }
  const auto count = static_cast<int64_t>(sorted.size());
  return sorted[std::max<int64_t>((count * percent + 99) / 100, 1) - 1];
}

// Ordinary tokens drawn evenly: text would be kinder to the cache, but which text?
std::vector<int32_t> RandomPrompt(const Tokenizer& tokenizer, int64_t count, uint64_t seed) {
  std::vector<int32_t> ids;
  for (uint64_t draw = 0; static_cast<int64_t>(ids.size()) < count; ++draw) {
    const auto id = static_cast<int32_t>(SplitMix64(seed, draw) %
                                         static_cast<uint64_t>(tokenizer.vocab_size()));
    if (!tokenizer.IsSpecial(id)) {
      ids.push_back(id);
    }
  }
  return ids;
}

class BenchCommand final : public Command {
 public:
  std::string name() const override { return "bench"; }
  std::string summary() const override { return "Measure the speed of a model on this machine"; }
  std::string examples() const override {
    return "  shoal bench ~/models/kimi-linear\n"
           "  shoal bench ~/models/kimi-linear --prefill 512 --decode 64 --budget 16GiB --json\n"
           "The prompt is random tokens; tokens are then chosen greedily.";
  }

  void AddFlags(FlagSet& flags) override {
    model_flags_.AddDirectory(flags);
    flags.Heading("Measurement");
    flags.Integer("--prefill", &prefill_tokens_, {1, 1'000'000},
                  absl::StrCat("Tokens of the prompt (default ", prefill_tokens_, ")"));
    flags.Integer("--decode", &decode_tokens_, {1, 1'000'000},
                  absl::StrCat("Tokens decoded after it (default ", decode_tokens_, ")"));
    flags.Integer("--seed", &seed_, {0}, "Another seed draws another prompt (default 0)");
    model_flags_.AddOptions(flags, "what --prefill and\n--decode need");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model,
                           OpenModel(model_flags_, prefill_tokens_ + decode_tokens_, console));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, model->NewSession());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    SHOAL_ASSIGN_OR_RETURN(const Phase prefill, Prefill(*model, *session, *interrupt));
    SHOAL_ASSIGN_OR_RETURN(const Phase decode, Decode(*model, *session, *interrupt));
    if (console.json()) {
      Json json;
      if (interrupt->requested()) {
        json["interrupted"] = true;
      }
      json["prefill"] = PhaseJson(prefill);
      json["decode"] = PhaseJson(decode);
      AddModelFields(*model, json);
      json["layers"] = LayersJson(model->ExpertStats());
      console.PrintJson(json);
    } else {
      console.Print(FormatPhase("prefill", prefill));
      console.Print(FormatPhase("decode", decode));
      if (interrupt->requested()) {
        console.Note("shoal: interrupted; this is what was measured until then");
      }
    }
    return interrupt->requested() ? ExitCode::kInterrupted : ExitCode::kOk;
  }

 private:
  // Whole chunks of the prompt, fewer tokens than asked where Ctrl-C comes first.
  absl::StatusOr<Phase> Prefill(const Model& model, Session& session,
                                const Interrupt& interrupt) const {
    const Clock& clock = Clock::Real();
    const std::vector<int32_t> prompt =
        RandomPrompt(model.tokenizer(), prefill_tokens_, static_cast<uint64_t>(seed_));
    const absl::Time start = clock.Now();
    Session::ExtendOptions extend;
    extend.stop = interrupt.token();
    if (const absl::Status status = session.Extend(prompt, extend);
        !status.ok() && !absl::IsCancelled(status)) {
      return status;
    }
    return Phase{.num_tokens = session.position(),
                 .time = clock.Now() - start,
                 .experts = TotalExperts(model.ExpertStats()),
                 .token_times = {}};
  }

  // Fewer tokens where Ctrl-C comes first.
  absl::StatusOr<Phase> Decode(const Model& model, Session& session,
                               const Interrupt& interrupt) const {
    const Clock& clock = Clock::Real();
    const std::vector<ExpertLayerStats> before = model.ExpertStats();
    Sampler greedy({});
    Phase phase;
    Session::ExtendOptions extend;
    extend.stop = interrupt.token();
    const absl::Time start = clock.Now();
    absl::Time token_start = start;
    while (phase.num_tokens < decode_tokens_ && !interrupt.requested()) {
      const int32_t id = greedy.Sample(session.logits(), {});
      const absl::Status status = session.Extend({&id, 1}, extend);
      if (absl::IsCancelled(status)) {
        break;
      }
      SHOAL_RETURN_IF_ERROR(status);
      ++phase.num_tokens;
      const absl::Time now = clock.Now();
      phase.token_times.push_back(now - token_start);
      token_start = now;
    }
    phase.time = token_start - start;
    phase.experts = TotalExperts(model.ExpertStats(), before);
    std::sort(phase.token_times.begin(), phase.token_times.end());
    return phase;
  }

  static std::string FormatPhase(absl::string_view name, const Phase& phase) {
    std::string text =
        absl::StrFormat("%-8s %d tokens in %.2f s, %.2f tokens/s", name, phase.num_tokens,
                        absl::ToDoubleSeconds(phase.time), Rate(phase.num_tokens, phase.time));
    if (!phase.token_times.empty()) {
      absl::StrAppendFormat(&text, ", a token p50 %.1f ms p95 %.1f ms",
                            absl::ToDoubleMilliseconds(Percentile(phase.token_times, 50)),
                            absl::ToDoubleMilliseconds(Percentile(phase.token_times, 95)));
    }
    return absl::StrCat(text, "; ", FormatExperts(phase.experts), "\n");
  }

  static Json PhaseJson(const Phase& phase) {
    Json json;
    json["tokens"] = phase.num_tokens;
    json["total_ms"] = absl::ToDoubleMilliseconds(phase.time);
    json["tokens_per_second"] = Rate(phase.num_tokens, phase.time);
    if (!phase.token_times.empty()) {
      json["token_p50_ms"] = absl::ToDoubleMilliseconds(Percentile(phase.token_times, 50));
      json["token_p95_ms"] = absl::ToDoubleMilliseconds(Percentile(phase.token_times, 95));
    }
    AddExpertFields(phase.experts, json);
    return json;
  }

  ModelFlags model_flags_;
  int64_t prefill_tokens_ = 128;
  int64_t decode_tokens_ = 32;
  int64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace shoal
