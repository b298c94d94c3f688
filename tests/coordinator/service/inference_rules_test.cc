#include "coordinator/service/inference_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "shoal/v1/inference.pb.h"
#include "tests/coordinator/service/error_info.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::InfoOf;
using ::shoal::testing::IsOk;
using ::shoal::testing::StatusIs;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kVocab = 300;
constexpr int64_t kContext = 100;
constexpr size_t kTextBytes = 65536;

InferenceRules Rules() { return InferenceRules({"tiny", kVocab, kContext}); }

v1::GenerateRequest Text(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

// The field that a request is refused for.
std::string Refused(const std::function<void(v1::GenerateRequest&)>& change) {
  v1::GenerateRequest request = Text("a");
  change(request);
  const auto checked = Rules().CheckGenerate(request);
  EXPECT_THAT(checked, StatusIs(absl::StatusCode::kInvalidArgument, _));
  return checked.ok() ? "" : InfoOf(checked.status()).field;
}

std::string RefusedOption(const std::function<void(v1::GenerationOptions&)>& change) {
  return Refused([&](v1::GenerateRequest& request) { change(*request.mutable_options()); });
}

TEST(InferenceRulesTest, AbsentOptionsAreTheDefaultsOfTheCommands) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerationInput input, Rules().CheckGenerate(Text("a")));
  const GenerateOptions defaults;
  EXPECT_EQ(input.options.max_tokens, 256);
  EXPECT_EQ(input.options.max_tokens, defaults.max_tokens);
  EXPECT_EQ(input.options.sampling.temperature, 0);
  EXPECT_EQ(input.options.sampling.top_p, 1);
  EXPECT_EQ(input.options.sampling.repetition_penalty, 1);
  EXPECT_EQ(input.options.sampling.seed, 0);
  EXPECT_FALSE(input.options.ignore_end_of_text);
}

TEST(InferenceRulesTest, EveryOptionArrives) {
  v1::GenerateRequest request;
  request.set_model("tiny");
  request.mutable_token_ids()->add_ids(kVocab - 1);
  v1::GenerationOptions& options = *request.mutable_options();
  options.set_max_tokens(kContext);
  options.add_stop("end");
  options.add_stop_token_ids(7);
  options.set_ignore_end_of_text(true);
  options.set_temperature(0.5);
  options.set_top_k(4'000'000'000);
  options.set_top_p(0.25);
  options.set_min_p(0.125);
  options.set_repetition_penalty(1.5);
  options.set_seed(std::numeric_limits<uint64_t>::max());
  SHOAL_ASSERT_OK_AND_ASSIGN(const GenerationInput input, Rules().CheckGenerate(request));
  EXPECT_THAT(std::get<std::vector<int32_t>>(input.prompt), ElementsAre(kVocab - 1));
  EXPECT_EQ(input.options.max_tokens, kContext);
  EXPECT_THAT(input.options.stop, ElementsAre("end"));
  EXPECT_THAT(input.options.stop_ids, ElementsAre(7));
  EXPECT_TRUE(input.options.ignore_end_of_text);
  EXPECT_EQ(input.options.sampling.temperature, 0.5);
  EXPECT_EQ(input.options.sampling.top_k, 4'000'000'000);
  EXPECT_EQ(input.options.sampling.top_p, 0.25);
  EXPECT_EQ(input.options.sampling.min_p, 0.125);
  EXPECT_EQ(input.options.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(input.options.sampling.seed, std::numeric_limits<uint64_t>::max());
}

TEST(InferenceRulesTest, TheFieldIsNamed) {
  using Request = v1::GenerateRequest;
  using Options = v1::GenerationOptions;
  EXPECT_EQ(Refused([](Request& r) { r.clear_prompt(); }), "prompt");
  EXPECT_EQ(Refused([](Request& r) { r.set_text(std::string(kTextBytes + 1, 'a')); }), "text");
  EXPECT_EQ(Refused([](Request& r) { r.set_text("a\xFFz"); }), "text");
  EXPECT_EQ(Refused([](Request& r) { r.mutable_token_ids()->add_ids(kVocab); }),
            "token_ids.ids[0]");
  EXPECT_EQ(Refused([](Request& r) { r.mutable_token_ids()->add_ids(0xFFFFFFFF); }),
            "token_ids.ids[0]");
  EXPECT_EQ(
      Refused([](Request& r) { r.mutable_token_ids()->mutable_ids()->Resize(kContext + 1, 0); }),
      "token_ids.ids");
  EXPECT_EQ(RefusedOption([](Options& o) { o.set_max_tokens(kContext + 1); }),
            "options.max_tokens");
  EXPECT_EQ(RefusedOption([](Options& o) { o.add_stop(""); }), "options.stop[0]");
  EXPECT_EQ(RefusedOption([](Options& o) { o.add_stop("\xC3"); }), "options.stop[0]");
  EXPECT_EQ(RefusedOption([](Options& o) {
              o.add_stop("a");
              o.add_stop(std::string(257, 'a'));
            }),
            "options.stop[1]");
  EXPECT_EQ(RefusedOption([](Options& o) {
              for (int i = 0; i < 17; ++i) {
                o.add_stop("a");
              }
            }),
            "options.stop");
  EXPECT_EQ(RefusedOption([](Options& o) { o.add_stop_token_ids(kVocab); }),
            "options.stop_token_ids[0]");
  EXPECT_EQ(RefusedOption([](Options& o) { o.mutable_stop_token_ids()->Resize(65, 0); }),
            "options.stop_token_ids");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(RefusedOption([&](Options& o) { o.set_temperature(nan); }), "options.temperature");
  EXPECT_EQ(RefusedOption([](Options& o) { o.set_temperature(-1); }), "options.temperature");
  EXPECT_EQ(RefusedOption([](Options& o) { o.set_top_p(0); }), "options.top_p");
  EXPECT_EQ(RefusedOption([](Options& o) { o.set_min_p(1.5); }), "options.min_p");
  EXPECT_EQ(RefusedOption([](Options& o) { o.set_repetition_penalty(0); }),
            "options.repetition_penalty");
}

TEST(InferenceRulesTest, TheLastThatIsAcceptedIs) {
  v1::GenerateRequest request = Text(std::string(kTextBytes, 'a'));
  for (int i = 0; i < 16; ++i) {
    request.mutable_options()->add_stop(std::string(256, 'a'));
  }
  request.mutable_options()->mutable_stop_token_ids()->Resize(64, 0);
  EXPECT_THAT(Rules().CheckGenerate(request), IsOk());
  EXPECT_LE(static_cast<int64_t>(request.ByteSizeLong()), Rules().MaxRequestBytes());
  request.mutable_token_ids()->mutable_ids()->Resize(kContext, kVocab - 1);
  EXPECT_THAT(Rules().CheckGenerate(request), IsOk());
}

TEST(InferenceRulesTest, AnotherModelIsNotFound) {
  v1::GenerateRequest request = Text("a");
  request.set_model("other");
  const auto refused = Rules().CheckGenerate(request);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kNotFound, HasSubstr("tiny")));
  EXPECT_EQ(InfoOf(refused.status()).reason, "MODEL_UNKNOWN");
}

v1::ChatRequest Conversation(std::initializer_list<v1::ChatRole> roles) {
  v1::ChatRequest request;
  for (const v1::ChatRole role : roles) {
    request.add_messages()->set_role(role);
  }
  return request;
}

std::string RefusedChat(const v1::ChatRequest& request) {
  const auto checked = Rules().CheckChat(request);
  EXPECT_THAT(checked, StatusIs(absl::StatusCode::kInvalidArgument, _));
  return checked.ok() ? "" : InfoOf(checked.status()).field;
}

TEST(InferenceRulesTest, AConversationKeepsItsOrderAndEndsWithWhatIsAnswered) {
  SHOAL_ASSERT_OK_AND_ASSIGN(
      const GenerationInput input,
      Rules().CheckChat(Conversation({v1::CHAT_ROLE_SYSTEM, v1::CHAT_ROLE_USER,
                                      v1::CHAT_ROLE_ASSISTANT, v1::CHAT_ROLE_TOOL})));
  std::vector<ChatRole> roles;
  for (const ChatMessage& message : std::get<std::vector<ChatMessage>>(input.prompt)) {
    roles.push_back(message.role);
  }
  EXPECT_THAT(roles, ElementsAre(ChatRole::kSystem, ChatRole::kUser, ChatRole::kAssistant,
                                 ChatRole::kTool));
  EXPECT_EQ(RefusedChat(Conversation({})), "messages");
  EXPECT_EQ(RefusedChat(Conversation({v1::CHAT_ROLE_USER, v1::CHAT_ROLE_ASSISTANT})),
            "messages[1].role");
  EXPECT_EQ(RefusedChat(Conversation({v1::CHAT_ROLE_UNSPECIFIED})), "messages[0].role");
  EXPECT_EQ(RefusedChat(Conversation({static_cast<v1::ChatRole>(99)})), "messages[0].role");
}

TEST(InferenceRulesTest, AConversationIsBounded) {
  v1::ChatRequest request;
  for (int i = 0; i < 1024; ++i) {
    request.add_messages()->set_role(v1::CHAT_ROLE_USER);
  }
  EXPECT_THAT(Rules().CheckChat(request), IsOk());
  request.mutable_messages(0)->set_content(std::string(kTextBytes, 'a'));
  EXPECT_THAT(Rules().CheckChat(request), IsOk());
  EXPECT_LE(static_cast<int64_t>(request.ByteSizeLong()), Rules().MaxRequestBytes());
  request.mutable_messages(1)->set_content("a");
  EXPECT_EQ(RefusedChat(request), "messages");
  request.mutable_messages(0)->clear_content();
  request.add_messages()->set_role(v1::CHAT_ROLE_USER);
  EXPECT_EQ(RefusedChat(request), "messages");
}

}  // namespace
}  // namespace shoal
