#include "common/tokenizer/chat_template.h"

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr char kDefaultSystem[] = "You are a helpful assistant";

absl::string_view RoleName(ChatRole role) {
  switch (role) {
    case ChatRole::kSystem:
      return "system";
    case ChatRole::kUser:
      return "user";
    case ChatRole::kAssistant:
      return "assistant";
    case ChatRole::kTool:
      return "tool";
  }
  return "";
}

absl::Status FindSpecial(const Tokenizer& tokenizer, absl::string_view name, int32_t& id) {
  const std::optional<int32_t> found = tokenizer.SpecialId(name);
  if (!found) {
    return absl::FailedPreconditionError(
        absl::StrCat("the tokenizer has no special token ", name, ", which the chat layout needs"));
  }
  id = *found;
  return absl::OkStatus();
}

void Append(std::vector<int32_t>& ids, const std::vector<int32_t>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Make(const Tokenizer& tokenizer) {
  ChatTemplate result(tokenizer);
  SHOAL_RETURN_IF_ERROR(FindSpecial(tokenizer, "<|im_system|>", result.im_system_));
  SHOAL_RETURN_IF_ERROR(FindSpecial(tokenizer, "<|im_user|>", result.im_user_));
  SHOAL_RETURN_IF_ERROR(FindSpecial(tokenizer, "<|im_assistant|>", result.im_assistant_));
  SHOAL_RETURN_IF_ERROR(FindSpecial(tokenizer, "<|im_middle|>", result.im_middle_));
  SHOAL_RETURN_IF_ERROR(FindSpecial(tokenizer, "<|im_end|>", result.im_end_));
  return result;
}

std::vector<int32_t> ChatTemplate::Message(const ChatMessage& message) const {
  int32_t marker = im_system_;  // tools speak through it too
  if (message.role == ChatRole::kUser) {
    marker = im_user_;
  } else if (message.role == ChatRole::kAssistant) {
    marker = im_assistant_;
  }
  std::vector<int32_t> ids = {marker};
  Append(ids, tokenizer_->EncodeText(RoleName(message.role)));
  ids.push_back(im_middle_);
  Append(ids, tokenizer_->EncodeText(message.content));
  ids.push_back(im_end_);
  return ids;
}

std::vector<int32_t> ChatTemplate::GenerationPrompt() const {
  std::vector<int32_t> ids = {im_assistant_};
  Append(ids, tokenizer_->EncodeText(RoleName(ChatRole::kAssistant)));
  ids.push_back(im_middle_);
  return ids;
}

std::vector<int32_t> ChatTemplate::Conversation(const std::vector<ChatMessage>& messages) const {
  std::vector<int32_t> ids;
  if (messages.empty() || messages.front().role != ChatRole::kSystem) {
    Append(ids, Message({ChatRole::kSystem, kDefaultSystem}));
  }
  for (const ChatMessage& message : messages) {
    Append(ids, Message(message));
  }
  Append(ids, GenerationPrompt());
  return ids;
}

}  // namespace shoal
