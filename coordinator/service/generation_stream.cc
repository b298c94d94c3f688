#include "coordinator/service/generation_stream.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "coordinator/service/error_details.h"
#include "shoal/v1/inference.pb.h"

namespace shoal {
namespace {

// By which a client names the call to the server's people.
constexpr char kCallMetadata[] = "shoal-call";
// How often a call whose reader is behind looks whether others wait.
constexpr absl::Duration kLookForOthers = absl::Milliseconds(250);

uint64_t Nanoseconds(absl::Duration time) {
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(time));
}

v1::FinishReason ToMessage(FinishReason reason) {
  switch (reason) {
    case FinishReason::kLength:
      return v1::FINISH_REASON_LENGTH;
    case FinishReason::kEndOfText:
      return v1::FINISH_REASON_END_OF_TEXT;
    case FinishReason::kStopString:
      return v1::FINISH_REASON_STOP_STRING;
    case FinishReason::kContextFull:
      return v1::FINISH_REASON_CONTEXT_FULL;
    case FinishReason::kCallerStopped:
      break;  // ends with an error
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

// Bytes of the prompt as it came.
int64_t InputBytes(const GenerationInput& input) {
  if (const auto* text = std::get_if<std::string>(&input.prompt)) {
    return std::ssize(*text);
  }
  if (const auto* ids = std::get_if<std::vector<int32_t>>(&input.prompt)) {
    return std::ssize(*ids) * static_cast<int64_t>(sizeof(int32_t));
  }
  int64_t bytes = 0;
  for (const ChatMessage& message : std::get<std::vector<ChatMessage>>(input.prompt)) {
    bytes += std::ssize(message.content);
  }
  return bytes;
}

// Whether an event that waits says nothing more once `next` is there.
bool IsReplacedBy(const v1::GenerateEvent& waiting, const v1::GenerateEvent& next) {
  return (waiting.has_queued() && !next.has_token()) ||
         (waiting.has_prefill() && next.has_prefill());
}

}  // namespace

GenerationStream::GenerationStream(const GenerationContext& context, ServerGuard* guard,
                                   grpc::CallbackServerContext& call, GenerationInput input,
                                   std::string caller, std::shared_ptr<CallStop> stop)
    : context_(context),
      input_(std::move(input)),
      caller_(std::move(caller)),
      number_(NewCallNumber()),
      stop_(std::move(stop)),
      stop_token_(stop_->token()),
      arrived_(context.clock.Now()),
      result_(absl::CancelledError("stopped")),
      watch_(guard, call, CallKind::kAnswer) {
  input_.options.call = number_;
  call.AddInitialMetadata(kCallMetadata, CallName(number_));
}

GenerationStream::~GenerationStream() = default;

void GenerationStream::Begin() {
  on_stop_.emplace(stop_token_, [this] { OnStop(); });
  if (context_.max_time != absl::InfiniteDuration()) {
    max_time_.Set(std::chrono::system_clock::now() + absl::ToChronoMicroseconds(context_.max_time),
                  [stop = stop_](bool rang) {
                    if (rang) {
                      stop->Request(StopCause::kMaxTime);
                    }
                  });
  }
  const absl::Status status =
      context_.texts.Submit(this, InputBytes(input_), [this] { ReadPrompt(); });
  if (!status.ok()) {
    End(status);
  }
}

void GenerationStream::ReadPrompt() {
  absl::StatusOr<std::vector<int32_t>> ids =
      context_.rules.PromptIds(input_, context_.model.tokenizer(), context_.chat);
  absl::Status status = ids.status();
  if (status.ok()) {
    prompt_ = *std::move(ids);
    input_.prompt = std::string();
    status = context_.scheduler.Submit(*this, stop_token_);
    if (status.ok()) {
      return;  // it may have ended already
    }
  }
  End(absl::IsCancelled(status) ? StopStatus() : status);
}

void GenerationStream::OnStop() {
  {
    MutexLock lock(&mutex_);
    changed_.NotifyAll();
  }
  if (context_.texts.Withdraw(this) || context_.scheduler.Withdraw(*this)) {
    End(StopStatus());
  }
}

void GenerationStream::OnPlace(int64_t place) {
  v1::GenerateEvent event;
  event.mutable_queued()->set_place(static_cast<uint32_t>(place));
  Push(std::move(event));
}

void GenerationStream::Run(int session_index) {
  ++context_.counters.calls;
  began_ = context_.clock.Now();
  Session& session = *context_.sessions[static_cast<size_t>(session_index)];
  has_turn_ = context_.turns.Take(stop_token_);
  if (!has_turn_) {
    return;
  }
  OnPrefill(0, std::ssize(prompt_));
  result_ = Generate(
      context_.model, session, prompt_, input_.options,
      [this](const TokenEvent& event) { return OnToken(event); }, stop_token_,
      [this](int64_t done, int64_t total) {
        OnPrefill(done, total);
        PassTurn();
      });
  if (has_turn_) {
    context_.turns.Leave();
  }
  session.Reset();
}

void GenerationStream::Ended() {
  if (!result_.ok() && !stop_token_.stop_requested()) {
    Log(result_.status());
    End(ForClient(result_.status(), number_));
    return;
  }
  if (!result_.ok() || result_->finish_reason == FinishReason::kCallerStopped) {
    const absl::Status stopped = StopStatus();
    Log(stopped);
    End(stopped);
    return;
  }
  Log(absl::OkStatus());
  PushFinished(*result_);
  End(absl::OkStatus());
}

void GenerationStream::Log(const absl::Status& status) const {
  const std::string message = absl::StrCat(
      std::string(status.message()), status.ok() ? "done: " : "; ", prefilled_, " prompt and ",
      generated_, " generated tokens in ",
      absl::FormatDuration(absl::Trunc(context_.clock.Now() - began_, absl::Milliseconds(1))));
  context_.log({.message = message, .call = number_, .code = status.code()});
}

void GenerationStream::Dropped(const absl::Status& why) { End(why); }

bool GenerationStream::OnToken(const TokenEvent& event) {
  ++context_.counters.generated_tokens;
  ++generated_;
  const absl::Time now = context_.clock.Now();
  if (first_token_) {
    context_.counters.token.Observe(now - last_token_);
  } else {
    first_token_ = now;
    context_.counters.first_token.Observe(now - arrived_);
  }
  last_token_ = now;
  v1::GenerateEvent message;
  message.mutable_token()->set_id(static_cast<uint32_t>(event.id));
  message.mutable_token()->set_text(std::string(event.text));
  Push(std::move(message));
  PassTurn();
  return !stop_token_.stop_requested();
}

void GenerationStream::OnPrefill(int64_t done, int64_t total) {
  context_.counters.prompt_tokens += static_cast<uint64_t>(done - prefilled_);
  prefilled_ = done;
  v1::GenerateEvent event;
  event.mutable_prefill()->set_done_tokens(static_cast<uint32_t>(done));
  event.mutable_prefill()->set_total_tokens(static_cast<uint32_t>(total));
  Push(std::move(event));
}

void GenerationStream::PassTurn() {
  if (!has_turn_) {
    return;  // it was stopped while others had it
  }
  bool behind = false;
  {
    MutexLock lock(&mutex_);
    behind = IsBehind();
  }
  if (!behind) {
    has_turn_ = context_.turns.Pass(stop_token_);
    return;
  }
  context_.turns.Leave();
  WaitForReader();
  has_turn_ = context_.turns.Take(stop_token_);
}

bool GenerationStream::IsBehind() {
  return events_.size() >= kMaxEvents && !stop_token_.stop_requested();
}

void GenerationStream::WaitForReader() {
  const absl::Time patience_ends = context_.clock.Now() + context_.behind_limit;
  while (true) {
    {
      MutexLock lock(&mutex_);
      if (!IsBehind()) {
        return;
      }
      changed_.WaitWithTimeout(&mutex_, kLookForOthers);
    }
    if (context_.clock.Now() >= patience_ends && context_.scheduler.load().waiting > 0) {
      stop_->Request(StopCause::kReaderBehind);
    }
  }
}

void GenerationStream::PushFinished(const GenerateResult& result) {
  v1::GenerateEvent event;
  v1::Finished& finished = *event.mutable_finished();
  finished.set_reason(ToMessage(result.finish_reason));
  finished.set_prompt_tokens(static_cast<uint32_t>(result.prompt_tokens));
  finished.set_generated_tokens(static_cast<uint32_t>(result.ids.size()));
  v1::GenerationTimes& times = *finished.mutable_times();
  times.set_queue_ns(Nanoseconds(began_ - arrived_));
  times.set_prefill_ns(Nanoseconds(result.prefill_time));
  times.set_decode_ns(Nanoseconds(result.decode_time));
  if (first_token_) {
    times.set_first_token_ns(Nanoseconds(*first_token_ - arrived_));
  }
  Push(std::move(event));
}

absl::Status GenerationStream::StopStatus() const {
  switch (stop_->cause()) {
    case StopCause::kMaxTime:
      return ClientError(
          absl::StatusCode::kDeadlineExceeded, "MAX_TIME",
          absl::StrCat("the call took more than the ", absl::FormatDuration(context_.max_time),
                       " that this server allows; ask for fewer tokens"));
    case StopCause::kReaderBehind:
      return ClientError(
          absl::StatusCode::kResourceExhausted, "READER_BEHIND",
          absl::StrCat("the client took no event for ", absl::FormatDuration(context_.behind_limit),
                       " while others waited for its session; read as they come"));
    case StopCause::kServerEnds:
      return ClientError(absl::StatusCode::kUnavailable, "DRAINING",
                         "the server ends, and the call was not done in time");
    case StopCause::kClientGone:
    case StopCause::kNone:
      break;
  }
  return absl::CancelledError("the call was cancelled");
}

void GenerationStream::Push(v1::GenerateEvent event) {
  {
    MutexLock lock(&mutex_);
    if (broken_) {
      return;
    }
    if (!events_.empty() && IsReplacedBy(*events_.back(), event)) {
      *events_.back() = std::move(event);
    } else {
      events_.push_back(std::make_unique<v1::GenerateEvent>(std::move(event)));
    }
  }
  SendNext();
}

void GenerationStream::End(const absl::Status& status) {
  context_.counters.AddEnded(status.code());
  {
    MutexLock lock(&mutex_);
    end_ = status;
  }
  SendNext();
}

void GenerationStream::SendNext() {
  const v1::GenerateEvent* event = nullptr;
  absl::Status end;
  {
    MutexLock lock(&mutex_);
    if (sending_ != nullptr || finished_) {
      return;
    }
    if (!events_.empty()) {
      sending_ = std::move(events_.front());
      events_.pop_front();
      event = sending_.get();
      changed_.NotifyAll();
    } else if (end_) {
      finished_ = true;
      end = *end_;
    } else {
      return;
    }
  }
  if (event != nullptr) {
    watch_.BeginWrite(event->ByteSizeLong());
    StartWrite(event);
  } else {
    Finish(ToDetailedGrpcStatus(end));
  }
}

void GenerationStream::OnWriteDone(bool ok) {
  watch_.EndWrite();
  {
    MutexLock lock(&mutex_);
    sending_ = nullptr;
    if (!ok) {
      broken_ = true;
      events_.clear();
    }
  }
  if (!ok) {
    stop_->Request(StopCause::kClientGone);
  }
  SendNext();
}

void GenerationStream::OnCancel() { stop_->Request(StopCause::kClientGone); }

void GenerationStream::OnDone() {
  context_.on_done(this);
  delete this;  // NOLINT(cppcoreguidelines-owning-memory): gRPC's reactors own themselves
}

}  // namespace shoal
