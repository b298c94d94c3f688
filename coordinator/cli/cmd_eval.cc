#include <algorithm>
#include <iterator>
#include <optional>
#include <stop_token>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/status_macros.h"
#include "common/sync/clock.h"
#include "coordinator/cli/commands.h"
#include "coordinator/cli/hidden_dump.h"
#include "coordinator/cli/interrupt.h"
#include "coordinator/cli/model_flags.h"
#include "coordinator/cli/npy_writer.h"
#include "coordinator/cli/statistics.h"
#include "coordinator/cli/text_input.h"
#include "coordinator/perplexity.h"
#include "coordinator/sampler.h"

namespace shoal {
namespace {

class EvalCommand final : public Command {
 public:
  std::string name() const override { return "eval"; }
  std::string summary() const override { return "Measure how well a model predicts a text"; }
  std::string examples() const override {
    return "  shoal eval ~/models/kimi-linear --file valid.txt --window 1024\n"
           "  shoal eval ~/models/kimi-linear \"The capital of France is\" --next 5\n"
           "  shoal eval ~/models/kimi-linear --ids 1,2,3 --dump-logits logits.npy";
  }

  void AddFlags(FlagSet& flags) override {
    model_flags_.AddDirectory(flags);
    input_.Add(flags, "TEXT", /*with_ids=*/true);
    flags.Integer("--limit", &limit_, {1}, "Only the first N tokens of the text");
    flags.Heading("Evaluation");
    flags.Integer("--window", &window_, {1, 1'000'000'000},
                  "Independent contexts of N tokens, each predicting the\ntokens that follow its "
                  "positions (default: one context,\ncut to --ctx)");
    flags.Integer("--next", &next_, {1, 1'000'000}, "Print the N likeliest tokens after the text");
    flags.Text("--dump-logits", "FILE", &dump_logits_,
               "Write all logits, float32 [positions, vocabulary],\nas a NumPy .npy file");
    flags.Text("--dump-hidden", "OUT", &dump_hidden_,
               "Write hidden states and routing as .npy files into\nthis directory");
    model_flags_.AddOptions(flags, "--window, or 4096");
  }

  absl::StatusOr<ExitCode> Run(Console& console) override {
    SHOAL_RETURN_IF_ERROR(input_.CheckOneSource());
    if (window_.has_value() && (next_.has_value() || dump_hidden_.has_value())) {
      return UsageError("--next and --dump-hidden look at one context; leave out --window");
    }
    SHOAL_ASSIGN_OR_RETURN(
        const std::unique_ptr<Model> model,
        OpenModel(model_flags_, window_.value_or(kDefaultContextTokens), console));
    SHOAL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, Ids(*model, console));
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, model->NewSession());
    SHOAL_ASSIGN_OR_RETURN(const std::unique_ptr<Interrupt> interrupt, Interrupt::Install());
    const Clock& clock = Clock::Real();
    const absl::Time start = clock.Now();
    Progress progress;
    const absl::StatusOr<TextScore> scored =
        Score(*model, *session, ids, interrupt->token(), progress);
    const absl::Duration time = clock.Now() - start;
    if (absl::IsCancelled(scored.status())) {
      PrintInterrupted(*model, progress, time, console);
      return ExitCode::kInterrupted;
    }
    SHOAL_ASSIGN_OR_RETURN(const TextScore score, scored);
    std::vector<TokenProbability> next;
    if (next_.has_value()) {
      next = TopTokens(session->logits(), *next_);
    }
    if (console.json()) {
      console.PrintJson(ResultJson(*model, score, next, time));
    } else {
      console.Print(FormatResult(*model, score, next));
      console.Note(absl::StrFormat("%d tokens in %.2f s; %s", ids.size(),
                                   absl::ToDoubleSeconds(time),
                                   FormatExperts(TotalExperts(model->ExpertStats()))));
    }
    return ExitCode::kOk;
  }

 private:
  // In tokens.
  struct Progress {
    int64_t done = 0;
    int64_t total = 0;
  };

  // The tokens to evaluate, at least one.
  absl::StatusOr<std::vector<int32_t>> Ids(const Model& model, Console& console) const {
    const int64_t context = model.mode().context_tokens;
    // One more than fits tells that there are more.
    const std::optional<int64_t> most =
        window_.has_value() ? limit_ : std::min(limit_.value_or(context + 1), context + 1);
    SHOAL_ASSIGN_OR_RETURN(std::vector<int32_t> ids, input_.ReadIds(model.tokenizer(), most));
    if (ids.empty()) {
      return UsageError("the text is empty; give at least one token to evaluate");
    }
    if (!window_.has_value() && std::ssize(ids) > context) {
      ids.resize(context);
      console.Note(absl::StrCat("shoal: the text has more than ", context, " tokens; the first ",
                                context, " are evaluated (raise --ctx, or use --window)"));
    }
    return ids;
  }

  absl::StatusOr<TextScore> Score(const Model& model, Session& session,
                                  const std::vector<int32_t>& ids, const std::stop_token& stop,
                                  Progress& progress) const {
    const auto positions = static_cast<int64_t>(ids.size()) - (window_.has_value() ? 1 : 0);
    ScoreOptions options;
    options.window_tokens = window_.value_or(0);
    options.stop = stop;
    progress.total = positions;
    options.on_progress = [&progress](int64_t done, int64_t) { progress.done = done; };
    std::optional<NpyWriter> logits_file;
    if (dump_logits_.has_value()) {
      SHOAL_ASSIGN_OR_RETURN(logits_file, NpyWriter::Create(*dump_logits_, NpyType::kFloat32,
                                                            positions, model.config().vocab_size));
      options.on_logits = [&logits_file](std::span<const float> logits) {
        return logits_file->Append(logits);
      };
    }
    std::unique_ptr<HiddenDump> hidden;
    if (dump_hidden_.has_value()) {
      SHOAL_ASSIGN_OR_RETURN(hidden, HiddenDump::Create(*dump_hidden_, positions));
      options.observer = hidden.get();
    }
    SHOAL_ASSIGN_OR_RETURN(const TextScore score, ScoreTokens(model, session, ids, options));
    if (logits_file.has_value()) {
      SHOAL_RETURN_IF_ERROR(logits_file->Finish());
    }
    if (hidden != nullptr) {
      SHOAL_RETURN_IF_ERROR(hidden->Finish());
    }
    return score;
  }

  void PrintInterrupted(const Model& model, const Progress& progress, absl::Duration time,
                        Console& console) const {
    if (console.json()) {
      Json json;
      json["interrupted"] = true;
      json["tokens"] = progress.done;
      json["window_tokens"] = window_.value_or(0);
      json["eval_ms"] = absl::ToDoubleMilliseconds(time);
      json["tokens_per_second"] = Rate(progress.done, time);
      AddMachineFields(model, json);
      console.PrintJson(json);
    }
    console.Note(absl::StrFormat("shoal: interrupted after %d of %d tokens in %.2f s; %s",
                                 progress.done, progress.total, absl::ToDoubleSeconds(time),
                                 FormatExperts(TotalExperts(model.ExpertStats()))));
  }

  static void AddMachineFields(const Model& model, Json& json) {
    const std::vector<ExpertLayerStats> stats = model.ExpertStats();
    AddExpertFields(TotalExperts(stats), json);
    AddModelFields(model, json);
    json["layers"] = LayersJson(stats);
  }

  static std::string BytesOf(const Model& model, int32_t id) {
    const absl::StatusOr<absl::string_view> bytes = model.tokenizer().TokenBytes(id);
    return bytes.ok() ? std::string(*bytes) : "";
  }

  std::string FormatResult(const Model& model, const TextScore& score,
                           const std::vector<TokenProbability>& next) const {
    std::string text =
        absl::StrFormat("predictions:    %d tokens, %d bytes\n", score.predictions, score.bytes);
    if (score.predictions > 0) {
      absl::StrAppendFormat(&text,
                            "nats per token: %.6f\nperplexity:     %.6f\nbits per byte:  %.6f\n",
                            score.nats_per_token(), score.perplexity(), score.bits_per_byte());
    }
    for (const TokenProbability& token : next) {
      absl::StrAppendFormat(&text, "%8.6f  %6d  \"%s\"\n", token.probability, token.id,
                            absl::Utf8SafeCEscape(BytesOf(model, token.id)));
    }
    return text;
  }

  Json ResultJson(const Model& model, const TextScore& score,
                  const std::vector<TokenProbability>& next, absl::Duration time) const {
    Json json;
    json["predictions"] = score.predictions;
    json["bytes"] = score.bytes;
    if (score.predictions > 0) {
      json["nats_per_token"] = score.nats_per_token();
      json["perplexity"] = score.perplexity();
      json["bits_per_byte"] = score.bits_per_byte();
    }
    json["window_tokens"] = window_.value_or(0);
    json["eval_ms"] = absl::ToDoubleMilliseconds(time);
    json["tokens_per_second"] = Rate(score.predictions, time);
    if (next_.has_value()) {
      json["next"] = Json::array();
    }
    for (const TokenProbability& token : next) {
      json["next"].push_back({{"id", token.id},
                              {"text", BytesOf(model, token.id)},
                              {"probability", token.probability},
                              {"logit", token.logit}});
    }
    AddMachineFields(model, json);
    return json;
  }

  ModelFlags model_flags_;
  TextInput input_;
  std::optional<int64_t> limit_;
  std::optional<int64_t> window_;
  std::optional<int64_t> next_;
  std::optional<std::string> dump_logits_;
  std::optional<std::string> dump_hidden_;
};

}  // namespace

std::unique_ptr<Command> MakeEvalCommand() { return std::make_unique<EvalCommand>(); }

}  // namespace shoal
