// The chat layout of K2-Instruct and Kimi-Linear (model-architectures, 8.1): for each message
//   [role token] "<role>" [im_middle] content [im_end]      with no newlines
// where bracketed names are special tokens and content is ordinary text: nothing a user writes can
// become a control token.
#ifndef SHOAL_COMMON_TOKENIZER_CHAT_TEMPLATE_H_
#define SHOAL_COMMON_TOKENIZER_CHAT_TEMPLATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/tokenizer.h"

namespace shoal {

enum class ChatRole { kSystem, kUser, kAssistant, kTool };

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;
};

// Thread-safe after Make.
class ChatTemplate {
 public:
  // FAILED_PRECONDITION where the tokenizer lacks a token of the layout; names it. `tokenizer`
  // outlives the template.
  static absl::StatusOr<ChatTemplate> Make(const Tokenizer& tokenizer);

  // Ids of one message, and of what makes the model answer ([im_assistant] "assistant"
  // [im_middle]).
  std::vector<int32_t> Message(const ChatMessage& message) const;
  std::vector<int32_t> GenerationPrompt() const;
  // A whole conversation followed by the generation prompt. Where the first message is not from the
  // system, "You are a helpful assistant" is put before it.
  std::vector<int32_t> Conversation(const std::vector<ChatMessage>& messages) const;
  // Ends an assistant turn: [im_end].
  int32_t end_of_message() const { return im_end_; }

 private:
  explicit ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  const Tokenizer* tokenizer_;
  int32_t im_system_ = 0;
  int32_t im_user_ = 0;
  int32_t im_assistant_ = 0;
  int32_t im_middle_ = 0;
  int32_t im_end_ = 0;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_TOKENIZER_CHAT_TEMPLATE_H_
