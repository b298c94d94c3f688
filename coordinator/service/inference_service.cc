#include "coordinator/service/inference_service.h"

#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/sync/mutex.h"
#include "common/version.h"
#include "coordinator/service/error_details.h"
#include "coordinator/service/generation_stream.h"
#include "expert_node/service/refusal.h"
#include "shoal/v1/inference.grpc.pb.h"

namespace shoal {
namespace {

constexpr int kMostSessions = 1024;
constexpr int64_t kMostWaiting = 10'000;
constexpr int64_t kMostTexts = 256;
// Texts that wait take no more together than so many of the longest.
constexpr int64_t kLongestTexts = 4;

absl::Status CheckOptions(const InferenceService::Options& options) {
  SHOAL_RETURN_IF_ERROR(CheckModelName(options.model_name));
  if (options.num_sessions < 1 || options.num_sessions > kMostSessions) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_sessions is ", options.num_sessions, "; 1 to ", kMostSessions));
  }
  if (options.max_waiting < 0 || options.max_waiting > kMostWaiting) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_waiting is ", options.max_waiting, "; 0 to ", kMostWaiting));
  }
  return absl::OkStatus();
}

// As the text of Generate has them; with `markup` special tokens by name.
absl::StatusOr<std::string> TextOf(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                   bool markup) {
  StreamingDetokenizer detokenizer(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    if (markup && tokenizer.IsSpecial(id)) {
      SHOAL_ASSIGN_OR_RETURN(const absl::string_view name, tokenizer.TokenBytes(id));
      absl::StrAppend(&text, detokenizer.Flush(), name);
      continue;
    }
    const absl::StatusOr<std::string> piece = detokenizer.Push(id);
    if (!piece.ok()) {
      return FieldError("ids", absl::StrCat("holds ", id, ", which stands for no token"));
    }
    text += *piece;
  }
  return text + detokenizer.Flush();
}

}  // namespace

class InferenceService::Impl final : public v1::Inference::CallbackService {
 public:
  using Stream = grpc::ServerWriteReactor<v1::GenerateEvent>;

  Impl(Model& model, std::optional<ChatTemplate> chat,
       std::vector<std::unique_ptr<Session>> sessions, const Options& options, const Clock& clock)
      : model_(model),
        options_(options),
        chat_(chat),
        sessions_(std::move(sessions)),
        rules_({options.model_name, model.config().vocab_size, model.mode().context_tokens}),
        texts_(kMostTexts, kLongestTexts * rules_.max_text_bytes()),
        scheduler_(options.num_sessions, options.max_waiting, clock),
        context_{model,
                 rules_,
                 chat_ ? &*chat_ : nullptr,
                 sessions_,
                 scheduler_,
                 turns_,
                 texts_,
                 counters_,
                 clock,
                 options.max_time,
                 options.behind_limit,
                 options.log,
                 [this](GenerationStream* stream) { Remove(stream); }} {}

  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest* request,
                                     v1::GetModelReply* reply) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeReply* reply) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeReply* reply) override;
  Stream* Generate(grpc::CallbackServerContext* context,
                   const v1::GenerateRequest* request) override {
    return Open(*context, rules_.CheckGenerate(*request));
  }
  Stream* Chat(grpc::CallbackServerContext* context, const v1::ChatRequest* request) override {
    if (!chat_) {
      return Open(*context, ClientError(absl::StatusCode::kFailedPrecondition, "NO_CHAT",
                                        "this model has no chat layout; use Generate"));
    }
    return Open(*context, rules_.CheckChat(*request));
  }

  void SetGuard(ServerGuard& guard) { guard_ = &guard; }
  int64_t MaxRequestBytes() const { return rules_.MaxRequestBytes(); }
  void AppendMetrics(PrometheusText& text);
  void Drain();
  bool WaitUntilDrained(absl::Duration timeout);
  void Stop();

 private:
  // Starts a call, or refuses it.
  Stream* Open(grpc::CallbackServerContext& context, absl::StatusOr<GenerationInput> input);
  void Remove(GenerationStream* stream);
  // Does a unary call, of `bytes` of text, in its turn among the texts.
  grpc::ServerUnaryReactor* InTextLine(grpc::CallbackServerContext& context, int64_t bytes,
                                       std::function<absl::Status()> work);
  void FillWork(v1::InferenceWork* work);
  bool draining();

  Model& model_;
  const Options options_;
  const std::optional<ChatTemplate> chat_;
  const std::vector<std::unique_ptr<Session>> sessions_;
  const InferenceRules rules_;
  InferenceCounters counters_;
  Turns turns_;

  Mutex mutex_;
  CondVar changed_;
  std::map<GenerationStream*, std::shared_ptr<CallStop>> streams_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;

  TextLine texts_;
  SessionScheduler scheduler_;
  const GenerationContext context_;
  std::atomic<ServerGuard*> guard_{nullptr};
};

InferenceService::Impl::Stream* InferenceService::Impl::Open(
    grpc::CallbackServerContext& context, absl::StatusOr<GenerationInput> input) {
  if (!input.ok()) {
    counters_.AddEnded(input.status().code());
    return Refuse<Stream>(ToDetailedGrpcStatus(input.status()));
  }
  auto stop = std::make_shared<CallStop>();
  GenerationStream* stream = nullptr;
  {
    MutexLock lock(&mutex_);
    if (draining_) {
      counters_.AddEnded(absl::StatusCode::kUnavailable);
      return Refuse<Stream>(ToDetailedGrpcStatus(DrainingError()));
    }
    // NOLINTNEXTLINE(cppcoreguidelines-owning-memory): deletes itself in OnDone
    stream = new GenerationStream(context_, guard_, context, *std::move(input),
                                  options_.caller(context), stop);
    streams_.emplace(stream, std::move(stop));
  }
  stream->Begin();
  return stream;
}

void InferenceService::Impl::Remove(GenerationStream* stream) {
  MutexLock lock(&mutex_);
  streams_.erase(stream);
  changed_.NotifyAll();
}

grpc::ServerUnaryReactor* InferenceService::Impl::GetModel(grpc::CallbackServerContext* context,
                                                           const v1::GetModelRequest* request,
                                                           v1::GetModelReply* reply) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  if (const absl::Status status = rules_.CheckModel(request->model()); !status.ok()) {
    reactor->Finish(ToDetailedGrpcStatus(status));
    return reactor;
  }
  const ModelConfig& config = model_.config();
  reply->set_name(options_.model_name);
  reply->set_identity(model_.container().manifest().identity);
  const EffectiveMode mode = model_.mode();
  reply->set_codec(mode.experts);
  reply->set_vocab_size(static_cast<uint32_t>(config.vocab_size));
  reply->set_context_tokens(static_cast<uint32_t>(mode.context_tokens));
  reply->set_chat(chat_.has_value());
  for (const int64_t id : config.eos_token_ids) {
    reply->add_end_token_ids(static_cast<uint32_t>(id));
  }
  reply->set_server_version(std::string(kVersion));
  v1::InferenceLimits& limits = *reply->mutable_limits();
  rules_.FillLimits(&limits);
  limits.set_sessions(static_cast<uint32_t>(options_.num_sessions));
  limits.set_queue(static_cast<uint32_t>(options_.max_waiting));
  if (options_.max_time != absl::InfiniteDuration()) {
    limits.set_max_time_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(options_.max_time)));
  }
  const SessionScheduler::Load load = scheduler_.load();
  reply->mutable_load()->set_running(static_cast<uint32_t>(load.running));
  reply->mutable_load()->set_waiting(static_cast<uint32_t>(load.waiting));
  reply->mutable_load()->set_draining(load.draining);
  FillWork(reply->mutable_work());
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

void InferenceService::Impl::FillWork(v1::InferenceWork* work) {
  work->set_calls(counters_.calls);
  work->set_prompt_tokens(counters_.prompt_tokens);
  work->set_generated_tokens(counters_.generated_tokens);
  ExpertLayerStats total;
  for (const ExpertLayerStats& layer : model_.ExpertStats()) {
    total += layer;
  }
  work->set_expert_hits(static_cast<uint64_t>(total.expert_hits));
  work->set_expert_misses(static_cast<uint64_t>(total.expert_misses));
  work->set_expert_bytes(total.expert_bytes);
}

grpc::ServerUnaryReactor* InferenceService::Impl::Tokenize(grpc::CallbackServerContext* context,
                                                           const v1::TokenizeRequest* request,
                                                           v1::TokenizeReply* reply) {
  return InTextLine(*context, std::ssize(request->text()), [this, request, reply] {
    SHOAL_RETURN_IF_ERROR(rules_.CheckTokenize(*request));
    const Tokenizer& tokenizer = model_.tokenizer();
    const std::vector<int32_t> ids = request->markup()
                                         ? tokenizer.EncodeWithSpecial(request->text())
                                         : tokenizer.EncodeText(request->text());
    reply->mutable_ids()->Assign(ids.begin(), ids.end());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::Impl::Detokenize(grpc::CallbackServerContext* context,
                                                             const v1::DetokenizeRequest* request,
                                                             v1::DetokenizeReply* reply) {
  const int64_t bytes = int64_t{request->ids_size()} * static_cast<int64_t>(sizeof(int32_t));
  return InTextLine(*context, bytes, [this, request, reply]() -> absl::Status {
    SHOAL_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, rules_.CheckDetokenize(*request));
    SHOAL_ASSIGN_OR_RETURN(*reply->mutable_text(),
                           TextOf(model_.tokenizer(), ids, request->markup()));
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* InferenceService::Impl::InTextLine(grpc::CallbackServerContext& context,
                                                             int64_t bytes,
                                                             std::function<absl::Status()> work) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  const absl::Status status =
      draining() ? DrainingError()
                 : texts_.Submit(reactor, bytes, [reactor, work = std::move(work)] {
                     reactor->Finish(ToDetailedGrpcStatus(work()));
                   });
  if (!status.ok()) {
    reactor->Finish(ToDetailedGrpcStatus(status));
  }
  return reactor;
}

void InferenceService::Impl::AppendMetrics(PrometheusText& text) {
  const SessionScheduler::Load load = scheduler_.load();
  text.Gauge("shoal_inference_sessions", "Calls that can be computed at a time.");
  text.Sample({}, static_cast<uint64_t>(options_.num_sessions));
  text.Gauge("shoal_inference_running", "Calls that are computed.");
  text.Sample({}, static_cast<uint64_t>(load.running));
  text.Gauge("shoal_inference_waiting", "Calls in line.");
  text.Sample({}, static_cast<uint64_t>(load.waiting));
  text.Gauge("shoal_inference_draining", "1: takes no new call.");
  text.Sample({}, static_cast<uint64_t>(load.draining ? 1 : 0));
  AppendInferenceCounters(counters_, text);
}

bool InferenceService::Impl::draining() {
  MutexLock lock(&mutex_);
  return draining_;
}

void InferenceService::Impl::Drain() {
  {
    MutexLock lock(&mutex_);
    draining_ = true;
  }
  scheduler_.Drain();
}

bool InferenceService::Impl::WaitUntilDrained(absl::Duration timeout) {
  const absl::Time end = context_.clock.Now() + timeout;
  MutexLock lock(&mutex_);
  while (!streams_.empty()) {
    const absl::Duration left = end - context_.clock.Now();
    if (left <= absl::ZeroDuration()) {
      return false;
    }
    changed_.WaitWithTimeout(&mutex_, left);
  }
  return true;
}

void InferenceService::Impl::Stop() {
  std::vector<std::shared_ptr<CallStop>> stops;
  {
    MutexLock lock(&mutex_);
    draining_ = true;
    stops.reserve(streams_.size());
    for (const auto& [stream, stop] : streams_) {
      stops.push_back(stop);
    }
  }
  for (const std::shared_ptr<CallStop>& stop : stops) {
    stop->Request(StopCause::kServerEnds);
  }
}

absl::StatusOr<std::unique_ptr<InferenceService>> InferenceService::Create(Model& model,
                                                                           const Options& options,
                                                                           const Clock& clock) {
  SHOAL_RETURN_IF_ERROR(CheckOptions(options));
  std::optional<ChatTemplate> chat;
  if (absl::StatusOr<ChatTemplate> layout = ChatTemplate::Make(model.tokenizer()); layout.ok()) {
    chat = *layout;
  }
  std::vector<std::unique_ptr<Session>> sessions;
  sessions.reserve(static_cast<size_t>(options.num_sessions));
  for (int i = 0; i < options.num_sessions; ++i) {
    SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, model.NewSession());
    sessions.push_back(std::move(session));
  }
  return std::unique_ptr<InferenceService>(new InferenceService(
      std::make_unique<Impl>(model, chat, std::move(sessions), options, clock)));
}

uint64_t InferenceService::MemoryBytes(const Options& options, int64_t context_tokens) {
  constexpr int64_t kThreadBytes = 256 * 1024;
  const InferenceRules rules({options.model_name, /*vocab_size=*/1, context_tokens});
  const int64_t ids = context_tokens * static_cast<int64_t>(sizeof(int32_t));
  const int64_t calls = options.num_sessions + options.max_waiting;
  // As it arrived, and as it is read.
  const int64_t texts = kLongestTexts * (rules.MaxRequestBytes() + rules.max_text_bytes());
  return static_cast<uint64_t>(calls * (rules.MaxRequestBytes() + ids) + texts +
                               (options.num_sessions + 1) * kThreadBytes);
}

CallLimits::Changes InferenceService::Limits(const Options& options) {
  const int64_t all = options.num_sessions + options.max_waiting;
  const int64_t of_caller =
      options.max_of_caller.value_or(std::max<int64_t>(options.num_sessions, (all + 1) / 2));
  // Those whose prompt is read, and those that the service refuses itself, with its reasons.
  constexpr int64_t kMore = 2 * kMostTexts;
  return {{CallKind::kAnswer, {static_cast<int>(all + kMore), static_cast<int>(of_caller)}}};
}

InferenceService::InferenceService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
InferenceService::~InferenceService() = default;

grpc::Service& InferenceService::grpc_service() { return *impl_; }
int64_t InferenceService::MaxRequestBytes() const { return impl_->MaxRequestBytes(); }
void InferenceService::AppendMetrics(PrometheusText& text) { impl_->AppendMetrics(text); }
void InferenceService::SetGuard(ServerGuard& guard) { impl_->SetGuard(guard); }
void InferenceService::Drain() { impl_->Drain(); }
bool InferenceService::WaitUntilDrained(absl::Duration timeout) {
  return impl_->WaitUntilDrained(timeout);
}
void InferenceService::Stop() { impl_->Stop(); }

absl::Status CheckModelName(const std::string& name) {
  constexpr size_t kMostBytes = 63;
  const bool plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
  });
  return plain && !name.empty() && name.size() <= kMostBytes
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat("the model's name is \"", name,
                                "\"; 1 to 63 letters, digits, '.', '_' and '-' are accepted"));
}

}  // namespace shoal
