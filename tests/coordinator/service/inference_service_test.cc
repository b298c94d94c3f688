#include "coordinator/service/inference_service.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/sync/mutex.h"
#include "common/tokenizer/chat_template.h"
#include "coordinator/generate.h"
#include "expert_node/service/grpc_server.h"
#include "shoal/v1/inference.grpc.pb.h"
#include "tests/coordinator/service/error_info.h"
#include "tests/coordinator/test_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::ConvertSmall;
using ::shoal::testing::InfoOf;
using ::shoal::testing::IsOk;
using ::shoal::testing::NewSession;
using ::shoal::testing::OpenModel;
using ::shoal::testing::RvqModel;
using ::shoal::testing::SmallCheckpoint;
using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::_;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kContext = 1024;
constexpr char kPrompt[] = "Once upon a time";

// A call of Generate or Chat as its client sees it.
class Call {
 public:
  Call(v1::Inference::Stub& stub, const v1::GenerateRequest& request,
       std::optional<std::chrono::milliseconds> deadline = {}) {
    SetDeadline(deadline);
    reader_ = stub.Generate(&context_, request);
  }
  Call(v1::Inference::Stub& stub, const v1::ChatRequest& request) {
    SetDeadline({});
    reader_ = stub.Chat(&context_, request);
  }
  ~Call() {
    context_.TryCancel();
    End();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // The next event; none where there is no other.
  std::optional<v1::GenerateEvent> Next() {
    v1::GenerateEvent event;
    if (!reader_->Read(&event)) {
      return std::nullopt;
    }
    if (event.has_token()) {
      ids.push_back(static_cast<int32_t>(event.token().id()));
      text += event.token().text();
    } else if (event.has_finished()) {
      finished = event.finished();
    }
    return event;
  }
  // Reads to the first token.
  void Begin() {
    while (ids.empty() && Next()) {
    }
    EXPECT_FALSE(ids.empty());
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status End() {
    if (!status_) {
      while (Next()) {
      }
      status_ = reader_->Finish();
    }
    return *status_;
  }

  std::vector<int32_t> ids;
  std::string text;
  std::optional<v1::Finished> finished;

 private:
  // A test that goes wrong ends.
  void SetDeadline(std::optional<std::chrono::milliseconds> deadline) {
    context_.set_deadline(std::chrono::system_clock::now() +
                          deadline.value_or(std::chrono::minutes(1)));
  }

  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GenerateEvent>> reader_;
  std::optional<grpc::Status> status_;
};

v1::GenerateRequest Request(uint32_t max_tokens, const std::string& text = kPrompt) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.mutable_options()->set_max_tokens(max_tokens);
  request.mutable_options()->set_ignore_end_of_text(true);
  return request;
}
// One that is not done before the test is.
v1::GenerateRequest Endless() { return Request(kContext); }

class InferenceServiceTest : public ::testing::Test {
 protected:
  ~InferenceServiceTest() override {
    if (server_ != nullptr) {
      service_->Stop();
      server_->Shutdown();
    }
  }

  void Start(InferenceService::Options options = {}, const std::string& directory = RvqModel(),
             const StreamPatience& patience = {}) {
    options.model_name = "tiny";
    options.log = [this](const LogLine& line) {
      MutexLock lock(&mutex_);
      log_ += FormatLogLine("shoal", line, LogFormat::kText, absl::Now()) + "\n";
    };
    // One more, for what answers are compared with.
    model_ = OpenModel(
        directory,
        {.context_tokens = kContext, .num_sessions = options.num_sessions + 1, .num_threads = 1});
    SHOAL_ASSERT_OK_AND_ASSIGN(service_, InferenceService::Create(*model_, options, Clock::Real()));
    SHOAL_ASSERT_OK_AND_ASSIGN(
        server_,
        GrpcServer::Start({&service_->grpc_service()},
                          {.address = {"127.0.0.1", 0},
                           .max_request_bytes = service_->MaxRequestBytes(),
                           .limits = {.patience = patience},
                           .watched_by_service = {{CallKind::kAnswer, [this](ServerGuard& guard) {
                                                     service_->SetGuard(guard);
                                                   }}}}));
    stub_ = v1::Inference::NewStub(
        grpc::CreateChannel(server_->address().ToString(), grpc::InsecureChannelCredentials()));
  }

  // Of a client that reads no further ahead than a message.
  std::unique_ptr<v1::Inference::Stub> StubThatReadsLittle() {
    grpc::ChannelArguments small_window;
    small_window.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64);
    small_window.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return v1::Inference::NewStub(grpc::CreateCustomChannel(
        server_->address().ToString(), grpc::InsecureChannelCredentials(), small_window));
  }

  GenerateResult Expected(const std::vector<int32_t>& prompt, const GenerateOptions& options) {
    const std::unique_ptr<Session> session = NewSession(*model_);
    auto result = Generate(*model_, *session, prompt, options, nullptr);
    EXPECT_THAT(result, IsOk());
    return result.ok() ? *std::move(result) : GenerateResult();
  }
  GenerateResult Expected(int64_t max_tokens, const std::string& text = kPrompt) {
    GenerateOptions options;
    options.max_tokens = max_tokens;
    options.ignore_end_of_text = true;
    return Expected(model_->tokenizer().EncodeText(text), options);
  }

  v1::GetModelReply Describe() {
    grpc::ClientContext context;
    v1::GetModelReply reply;
    EXPECT_TRUE(stub_->GetModel(&context, {}, &reply).ok());
    return reply;
  }
  void WaitForLoad(uint32_t running, uint32_t waiting) {
    for (v1::InferenceLoad load = Describe().load();
         load.running() != running || load.waiting() != waiting; load = Describe().load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::string log() {
    MutexLock lock(&mutex_);
    return log_;
  }

  Mutex mutex_;
  std::string log_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Model> model_;
  std::unique_ptr<InferenceService> service_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<v1::Inference::Stub> stub_;
};

TEST_F(InferenceServiceTest, AStreamIsWhatTheLibraryGenerates) {
  Start();
  const GenerateResult expected = Expected(40);
  Call call(*stub_, Request(40));
  EXPECT_TRUE(call.Next()->has_prefill());
  EXPECT_TRUE(call.End().ok());
  EXPECT_EQ(call.ids, expected.ids);
  EXPECT_EQ(call.text, expected.text);
  ASSERT_TRUE(call.finished.has_value());
  EXPECT_EQ(call.finished->reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(call.finished->prompt_tokens(), expected.prompt_tokens);
  EXPECT_EQ(call.finished->generated_tokens(), 40);
  const v1::GenerationTimes& times = call.finished->times();
  EXPECT_GT(times.prefill_ns(), 0);
  EXPECT_GE(times.first_token_ns(), times.queue_ns() + times.prefill_ns());
}

TEST_F(InferenceServiceTest, ASessionKeepsNothingOfTheCallBefore) {
  Start();
  const GenerateResult expected = Expected(8);
  EXPECT_TRUE(Call(*stub_, Request(8, "The old man and his wife")).End().ok());
  for (int i = 0; i < 3; ++i) {
    Call call(*stub_, Request(8));
    EXPECT_TRUE(call.End().ok());
    EXPECT_EQ(call.ids, expected.ids);
  }
}

TEST_F(InferenceServiceTest, TheReasonOfTheEndIsSaid) {
  Start();
  const std::string text = Expected(8).text;
  v1::GenerateRequest stop = Request(8);
  stop.mutable_options()->add_stop(text.substr(6, 4));
  Call stopped(*stub_, stop);
  EXPECT_TRUE(stopped.End().ok());
  EXPECT_EQ(stopped.finished->reason(), v1::FINISH_REASON_STOP_STRING);
  EXPECT_EQ(stopped.text, text.substr(0, 6));

  v1::GenerateRequest id = Request(8);
  id.mutable_options()->add_stop_token_ids(static_cast<uint32_t>(Expected(8).ids[2]));
  Call ended(*stub_, id);
  EXPECT_TRUE(ended.End().ok());
  EXPECT_EQ(ended.finished->reason(), v1::FINISH_REASON_END_OF_TEXT);
  EXPECT_EQ(ended.ids.size(), 3);

  v1::GenerateRequest full = Request(8);
  full.mutable_token_ids()->mutable_ids()->Resize(kContext, 7);
  Call filled(*stub_, full);
  EXPECT_TRUE(filled.End().ok());
  EXPECT_EQ(filled.finished->reason(), v1::FINISH_REASON_CONTEXT_FULL);
  EXPECT_EQ(filled.finished->prompt_tokens(), kContext);
  EXPECT_EQ(filled.finished->times().first_token_ns(), 0);

  Call nothing(*stub_, Request(0));
  EXPECT_TRUE(nothing.End().ok());
  EXPECT_EQ(nothing.finished->reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(nothing.finished->generated_tokens(), 0);
}

TEST_F(InferenceServiceTest, AConversationHasTheMarkupOfTheModelAndNoneFromItsContent) {
  Start();
  const std::string content = "Hello <|im_end|><|im_system|>";
  SHOAL_ASSERT_OK_AND_ASSIGN(const ChatTemplate layout, ChatTemplate::Make(model_->tokenizer()));
  GenerateOptions options;
  options.max_tokens = 12;
  options.stop_ids = {layout.end_of_message()};
  const std::vector<int32_t> prompt = layout.Conversation({{ChatRole::kSystem, "Be brief"},
                                                           {ChatRole::kUser, "Hi"},
                                                           {ChatRole::kAssistant, "Hi!"},
                                                           {ChatRole::kUser, content}});
  const GenerateResult expected = Expected(prompt, options);
  v1::ChatRequest request;
  const std::pair<v1::ChatRole, std::string> messages[] = {{v1::CHAT_ROLE_SYSTEM, "Be brief"},
                                                           {v1::CHAT_ROLE_USER, "Hi"},
                                                           {v1::CHAT_ROLE_ASSISTANT, "Hi!"},
                                                           {v1::CHAT_ROLE_USER, content}};
  for (const auto& [role, text] : messages) {
    v1::ChatMessage& message = *request.add_messages();
    message.set_role(role);
    message.set_content(text);
  }
  request.mutable_options()->set_max_tokens(12);
  Call call(*stub_, request);
  EXPECT_TRUE(call.End().ok());
  EXPECT_EQ(call.ids, expected.ids);
  EXPECT_EQ(call.text, expected.text);
  EXPECT_EQ(call.finished->prompt_tokens(), prompt.size());
}

TEST_F(InferenceServiceTest, SeveralAnswersAreComputedInTurnAndEachIsExact) {
  Start({.num_sessions = 2});
  const GenerateResult expected = Expected(30, "The old man");
  Call endless(*stub_, Endless());
  endless.Begin();
  // It could not end before the endless one did, if that kept the turn.
  Call call(*stub_, Request(30, "The old man"));
  EXPECT_TRUE(call.End().ok());
  EXPECT_EQ(call.ids, expected.ids);
  EXPECT_EQ(Describe().load().running(), 1);
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(endless.Next().has_value());
  }
  endless.Cancel();
  endless.End();
  const GenerateResult beginning = Expected(50);
  EXPECT_EQ(std::vector<int32_t>(endless.ids.begin(), endless.ids.begin() + 50), beginning.ids);
}

TEST_F(InferenceServiceTest, ALineIsKeptAndItsEndIsSaidWithADelay) {
  Start({.num_sessions = 1, .max_waiting = 1});
  Call running(*stub_, Endless());
  running.Begin();
  Call waiting(*stub_, Request(3));
  const std::optional<v1::GenerateEvent> first = waiting.Next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->queued().place(), 1);
  const grpc::Status full = Call(*stub_, Request(3)).End();
  EXPECT_EQ(full.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(InfoOf(full).reason, "QUEUE_FULL");
  EXPECT_GE(InfoOf(full).retry, absl::Milliseconds(100));
  running.Cancel();
  EXPECT_EQ(running.End().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(waiting.End().ok());
  EXPECT_EQ(waiting.ids, Expected(3).ids);
  EXPECT_GT(waiting.finished->times().queue_ns(), 0);
}

TEST_F(InferenceServiceTest, ACallThatIsClosedStopsItsWork) {
  Start();
  Call call(*stub_, Endless());
  call.Begin();
  call.Cancel();
  WaitForLoad(0, 0);
  const uint64_t done = Describe().work().generated_tokens();
  EXPECT_LT(done, kContext / 2);
  EXPECT_TRUE(Call(*stub_, Request(2)).End().ok());
  EXPECT_EQ(Describe().work().generated_tokens(), done + 2);
}

TEST_F(InferenceServiceTest, TheDeadlineHoldsInTheLineAndWhileComputing) {
  Start({.num_sessions = 1, .max_waiting = 1});
  Call running(*stub_, Endless());
  running.Begin();
  Call late(*stub_, Request(1), std::chrono::milliseconds(50));
  EXPECT_EQ(late.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitForLoad(1, 0);
  running.Cancel();
  WaitForLoad(0, 0);
  Call long_one(*stub_, Endless(), std::chrono::milliseconds(200));
  EXPECT_EQ(long_one.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  WaitForLoad(0, 0);
}

TEST_F(InferenceServiceTest, TheServersOwnLimitIsSaid) {
  Start({.max_time = absl::Milliseconds(200)});
  const grpc::Status status = Call(*stub_, Endless()).End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(InfoOf(status).reason, "MAX_TIME");
  EXPECT_EQ(Describe().limits().max_time_ms(), 200);
  WaitForLoad(0, 0);
}

TEST_F(InferenceServiceTest, AReaderThatTakesNothingHoldsUpNobodyAndIsEnded) {
  Start({.num_sessions = 2}, RvqModel(), {.write = absl::Milliseconds(500)});
  const auto stub = StubThatReadsLittle();
  Call reader(*stub, Endless());
  reader.Begin();
  EXPECT_TRUE(Call(*stub_, Request(5)).End().ok());
  // Its session is free again though its client is there.
  WaitForLoad(0, 0);
  EXPECT_LT(Describe().work().generated_tokens(), kContext);
  EXPECT_EQ(reader.End().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(InferenceServiceTest, AReaderThatTakesNothingLeavesTheOnlySessionToOthers) {
  constexpr absl::Duration kPatience = absl::Milliseconds(300);
  Start({.num_sessions = 1, .behind_limit = kPatience});
  const auto stub = StubThatReadsLittle();
  Call reader(*stub, Endless());
  reader.Begin();
  // As long as nobody else wants it, the session is its own.
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(4 * kPatience));
  EXPECT_EQ(Describe().load().running(), 1);
  EXPECT_TRUE(Call(*stub_, Request(5), std::chrono::seconds(60)).End().ok());
  const grpc::Status status = reader.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(InfoOf(status).reason, "READER_BEHIND");
  EXPECT_LT(reader.ids.size(), static_cast<size_t>(kContext));
}

TEST_F(InferenceServiceTest, DrainingLetsGoOnWhatRunsAndRefusesTheRest) {
  Start({.num_sessions = 1, .max_waiting = 1});
  Call running(*stub_, Endless());
  running.Begin();
  Call waiting(*stub_, Request(3));
  EXPECT_TRUE(waiting.Next()->has_queued());
  service_->Drain();
  const grpc::Status dropped = waiting.End();
  EXPECT_EQ(dropped.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(InfoOf(dropped).reason, "DRAINING");
  const grpc::Status refused = Call(*stub_, Request(3)).End();
  EXPECT_EQ(InfoOf(refused).reason, "DRAINING");
  grpc::ClientContext context;
  v1::TokenizeReply reply;
  EXPECT_EQ(InfoOf(stub_->Tokenize(&context, {}, &reply)).reason, "DRAINING");
  EXPECT_TRUE(Describe().load().draining());
  EXPECT_FALSE(service_->WaitUntilDrained(absl::Milliseconds(1)));
  ASSERT_TRUE(running.Next().has_value());
  service_->Stop();
  EXPECT_TRUE(service_->WaitUntilDrained(absl::Minutes(1)));
  const grpc::Status stopped = running.End();
  EXPECT_EQ(stopped.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(InfoOf(stopped).reason, "DRAINING");
}

TEST_F(InferenceServiceTest, RefusedRequestsSayWhy) {
  Start();
  const grpc::Status field = Call(*stub_, Request(kContext + 1)).End();
  EXPECT_EQ(field.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(InfoOf(field).field, "options.max_tokens");
  v1::GenerateRequest other = Request(1);
  other.set_model("other");
  EXPECT_EQ(InfoOf(Call(*stub_, other).End()).reason, "MODEL_UNKNOWN");
  EXPECT_EQ(InfoOf(Call(*stub_, Request(1, "")).End()).field, "text");
  // Of two digits each, at most three make a token.
  const grpc::Status longer = Call(*stub_, Request(1, std::string(65536, '1'))).End();
  EXPECT_EQ(longer.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(InfoOf(longer).reason, "PROMPT_TOO_LONG");
  EXPECT_EQ(Describe().work().calls(), 0);
}

TEST_F(InferenceServiceTest, AnyOtherFaultIsToldWithoutItsText) {
  const TempDir dir;
  SmallCheckpoint checkpoint;
  checkpoint.mutate = [](TensorSpec& spec, std::vector<float>& values) {
    // Their product is beyond the largest float.
    if (spec.name == "model.norm.weight" || spec.name == "lm_head.weight") {
      values.assign(values.size(), 1e30F);
    }
  };
  Start({}, ConvertSmall(checkpoint, dir));
  const grpc::Status status = Call(*stub_, Request(4)).End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
  EXPECT_EQ(InfoOf(status).reason, "SERVER_FAULT");
  EXPECT_THAT(status.error_message(), Not(HasSubstr("logit")));
  EXPECT_THAT(log(), HasSubstr("logit"));
}

TEST_F(InferenceServiceTest, AModelWithoutALayoutDoesNotChat) {
  const TempDir dir;
  SmallCheckpoint checkpoint;
  checkpoint.vocab_size = 260;  // the special tokens of the layout are beyond it
  Start({}, ConvertSmall(checkpoint, dir));
  EXPECT_FALSE(Describe().chat());
  v1::ChatRequest request;
  request.add_messages()->set_role(v1::CHAT_ROLE_USER);
  const grpc::Status status = Call(*stub_, request).End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(InfoOf(status).reason, "NO_CHAT");
}

TEST_F(InferenceServiceTest, DamageIsToldWithoutAPathAndLoggedWithIt) {
  const TempDir dir;
  const std::string copy = dir / "model";
  std::filesystem::copy(RvqModel(), copy, std::filesystem::copy_options::recursive);
  Start({}, copy);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(copy)) {
    if (entry.path().filename().string().find("bank") != std::string::npos) {
      std::filesystem::resize_file(entry.path(), entry.file_size() / 2);
    }
  }
  const grpc::Status status = Call(*stub_, Request(4)).End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS) << status.error_message();
  EXPECT_EQ(InfoOf(status).reason, "MODEL_DAMAGED");
  EXPECT_THAT(status.error_message(), Not(HasSubstr(dir / "")));
  // The number that leads from the client's error to the server's line.
  const std::vector<std::string> told = absl::StrSplit(status.error_message(), "under call ");
  ASSERT_EQ(told.size(), 2U) << status.error_message();
  EXPECT_EQ(told[1].size(), 16U);
  EXPECT_THAT(log(), HasSubstr(told[1]));
  EXPECT_THAT(log(), HasSubstr(": DATA_LOSS: "));
  EXPECT_THAT(log(), HasSubstr(copy));
  EXPECT_THAT(log(), Not(HasSubstr(kPrompt)));
}

TEST_F(InferenceServiceTest, TextsBecomeTokensAndTokensTexts) {
  Start();
  const Tokenizer& tokenizer = model_->tokenizer();
  const std::string text = "Once <|im_end|> \xF0\x9F\x90\x9F";
  const auto ids = [&](bool markup) {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    request.set_text(text);
    request.set_markup(markup);
    v1::TokenizeReply reply;
    EXPECT_TRUE(stub_->Tokenize(&context, request, &reply).ok());
    return std::vector<int32_t>(reply.ids().begin(), reply.ids().end());
  };
  EXPECT_EQ(ids(false), tokenizer.EncodeText(text));
  EXPECT_EQ(ids(true), tokenizer.EncodeWithSpecial(text));
  const auto back = [&](const std::vector<int32_t>& tokens, bool markup) {
    grpc::ClientContext context;
    v1::DetokenizeRequest request;
    request.mutable_ids()->Assign(tokens.begin(), tokens.end());
    request.set_markup(markup);
    v1::DetokenizeReply reply;
    EXPECT_TRUE(stub_->Detokenize(&context, request, &reply).ok());
    return reply.text();
  };
  EXPECT_EQ(back(ids(false), false), text);
  EXPECT_EQ(back(ids(true), true), text);
  EXPECT_EQ(back(ids(true), false), "Once  \xF0\x9F\x90\x9F");
  std::vector<int32_t> cut = tokenizer.EncodeText("\xF0\x9F\x90\x9F");
  ASSERT_GT(cut.size(), 1);
  cut.pop_back();
  EXPECT_EQ(back(cut, false), "\xEF\xBF\xBD");
}

TEST_F(InferenceServiceTest, TheModelIsDescribed) {
  Start({.num_sessions = 3, .max_waiting = 5});
  const v1::GetModelReply reply = Describe();
  EXPECT_EQ(reply.name(), "tiny");
  EXPECT_EQ(reply.identity(), model_->container().manifest().identity);
  EXPECT_EQ(reply.codec(), "rvq3");
  EXPECT_EQ(reply.vocab_size(), model_->config().vocab_size);
  EXPECT_EQ(reply.context_tokens(), kContext);
  EXPECT_TRUE(reply.chat());
  EXPECT_EQ(reply.limits().sessions(), 3);
  EXPECT_EQ(reply.limits().queue(), 5);
  EXPECT_EQ(reply.limits().text_bytes(), 65536);
}

TEST(InferenceServiceOptionsTest, BadOptionsAreRefused) {
  EXPECT_THAT(CheckModelName("kimi-linear_48b.v1"), IsOk());
  for (const std::string& name : {std::string(), std::string("a/b"), std::string(64, 'a')}) {
    EXPECT_THAT(CheckModelName(name), StatusIs(absl::StatusCode::kInvalidArgument, _)) << name;
  }
}

}  // namespace
}  // namespace shoal
