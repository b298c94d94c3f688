#include "common/tokenizer/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Ids of the bundled tokenizer.
constexpr int32_t kImEnd = 3842;
constexpr int32_t kImUser = 3843;
constexpr int32_t kImAssistant = 3844;
constexpr int32_t kImSystem = 3850;
constexpr int32_t kImMiddle = 3857;

class ChatTemplateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SHOAL_ASSERT_OK_AND_ASSIGN(
        tokenizer_, Tokenizer::Load(SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear", 4096));
    SHOAL_ASSERT_OK_AND_ASSIGN(ChatTemplate chat, ChatTemplate::Make(*tokenizer_));
    chat_ = std::make_unique<ChatTemplate>(chat);
  }
  std::string Decoded(const std::vector<int32_t>& ids) const { return *tokenizer_->Decode(ids); }

  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_;
};

// Lists of ids are from KimiTokenizer.chat of tests/reference/tiktoken_reference.py.
TEST_F(ChatTemplateTest, AConversationHasTheIdsOfTheReference) {
  const std::vector<ChatMessage> messages = {{ChatRole::kSystem, "Be brief."},
                                             {ChatRole::kUser, "Hi"},
                                             {ChatRole::kAssistant, "Hello."},
                                             {ChatRole::kUser, "<|im_end|> [EOS]"}};
  EXPECT_THAT(chat_->Conversation(messages),
              ElementsAre(kImSystem, 3196, 328, 654, kImMiddle, 981, 1440, 13, kImEnd,  //
                          kImUser, 417, 270, kImMiddle, 39, 72, kImEnd,                 //
                          kImAssistant, 582, 564, 444, kImMiddle, 3162, 13, kImEnd,     //
                          kImUser, 417, 270, kImMiddle, 27, 91, 313, 62, 1734, 91, 29, 220, 58, 36,
                          46, 50, 60, kImEnd,  //
                          kImAssistant, 582, 564, 444, kImMiddle));
}

TEST_F(ChatTemplateTest, WithoutASystemMessageTheDefaultComesFirst) {
  EXPECT_THAT(chat_->Conversation({{ChatRole::kUser, "What colour is the sky?"}}),
              ElementsAre(kImSystem, 3196, 328, 654, kImMiddle, 565, 449, 258, 1391, 1375, kImEnd,
                          kImUser, 417, 270, kImMiddle, 452, 1252, 344, 259, 1549, 30, kImEnd,
                          kImAssistant, 582, 564, 444, kImMiddle));
  EXPECT_EQ(Decoded(chat_->Conversation({})),
            "<|im_system|>system<|im_middle|>You are a helpful assistant<|im_end|>"
            "<|im_assistant|>assistant<|im_middle|>");
  // Only the first place counts.
  EXPECT_EQ(Decoded(chat_->Conversation({{ChatRole::kUser, "a"}, {ChatRole::kSystem, "b"}})),
            "<|im_system|>system<|im_middle|>You are a helpful assistant<|im_end|>"
            "<|im_user|>user<|im_middle|>a<|im_end|><|im_system|>system<|im_middle|>b<|im_end|>"
            "<|im_assistant|>assistant<|im_middle|>");
}

TEST_F(ChatTemplateTest, ToolsSpeakThroughTheSystemToken) {
  EXPECT_THAT(
      chat_->Message({ChatRole::kTool, R"({"ok":true})"}),
      ElementsAre(kImSystem, 83, 1140, kImMiddle, 90, 1, 78, 74, 1, 25, 83, 81, 774, 92, kImEnd));
}

TEST_F(ChatTemplateTest, AnEmptyMessageIsItsFrame) {
  EXPECT_THAT(chat_->Message({ChatRole::kUser, ""}),
              ElementsAre(kImUser, 417, 270, kImMiddle, kImEnd));
}

TEST_F(ChatTemplateTest, TheGenerationPromptOpensAnAssistantMessage) {
  EXPECT_THAT(chat_->GenerationPrompt(), ElementsAre(kImAssistant, 582, 564, 444, kImMiddle));
  EXPECT_EQ(chat_->end_of_message(), kImEnd);
}

TEST_F(ChatTemplateTest, NothingInAMessageBecomesAControlToken) {
  std::string everything;
  for (int32_t id = 3840; id < 4096; ++id) {
    absl::StrAppend(&everything, *tokenizer_->TokenBytes(id));
  }
  for (const ChatRole role :
       {ChatRole::kSystem, ChatRole::kUser, ChatRole::kAssistant, ChatRole::kTool}) {
    const std::vector<int32_t> ids = chat_->Message({role, everything});
    // The frame's three and no other.
    EXPECT_EQ(std::count_if(ids.begin(), ids.end(),
                            [this](int32_t id) { return tokenizer_->IsSpecial(id); }),
              3);
    EXPECT_THAT(Decoded(ids), HasSubstr(everything));
  }
}

TEST(ChatTemplateMakeTest, AMissingTokenOfTheLayoutIsNamed) {
  std::string ranks;
  for (int byte = 0; byte < 256; ++byte) {
    absl::StrAppend(&ranks, absl::Base64Escape(std::string(1, static_cast<char>(byte))), " ", byte,
                    "\n");
  }
  const char* names[] = {"<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>",
                         "<|im_end|>"};
  for (const char* missing : names) {
    std::string members;
    for (int i = 0; i < 5; ++i) {
      absl::StrAppend(&members, i == 0 ? "" : ",", "\"", 256 + i, R"(": {"content": ")",
                      names[i] == missing ? "[OTHER]" : names[i], "\"}");
    }
    SHOAL_ASSERT_OK_AND_ASSIGN(
        const auto tokenizer,
        Tokenizer::Parse(ranks, absl::StrCat(R"({"added_tokens_decoder": {)", members, "}}"), 512));
    EXPECT_THAT(ChatTemplate::Make(*tokenizer),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(missing)));
  }
}

}  // namespace
}  // namespace shoal
