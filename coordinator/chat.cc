#include "coordinator/chat.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/status/status_macros.h"

namespace shoal {

absl::StatusOr<Chat> Chat::Make(Model& model, std::optional<std::string> system) {
  SHOAL_ASSIGN_OR_RETURN(const ChatTemplate chat_template, ChatTemplate::Make(model.tokenizer()));
  SHOAL_ASSIGN_OR_RETURN(std::unique_ptr<Session> session, model.NewSession());
  return Chat(model, chat_template, std::move(session), std::move(system));
}

Chat::Chat(const Model& model, const ChatTemplate& chat_template, std::unique_ptr<Session> session,
           std::optional<std::string> system)
    : model_(&model),
      template_(chat_template),
      session_(std::move(session)),
      system_(std::move(system)) {}

absl::StatusOr<GenerateResult> Chat::Answer(const std::string& message,
                                            const GenerateOptions& options,
                                            const std::function<bool(const TokenEvent&)>& on_token,
                                            std::stop_token stop) {
  GenerateOptions turn_options = options;
  turn_options.stop_ids.push_back(template_.end_of_message());
  const std::vector<int32_t> prompt = Turn(message);
  const int64_t start = session_->position();
  absl::StatusOr<GenerateResult> result =
      Generate(*model_, *session_, prompt, turn_options, on_token, std::move(stop));
  if (!result.ok() && session_->position() == start) {
    return result;  // nothing was run: as if the message had not been given
  }
  std::vector<int32_t> wanted = prompt;
  if (result.ok()) {
    wanted.insert(wanted.end(), result->ids.begin(), result->ids.end());
  }
  const int64_t done = std::min<int64_t>(session_->position() - start, std::ssize(wanted));
  owed_.assign(wanted.begin() + done, wanted.end());
  return result;
}

std::vector<int32_t> Chat::Turn(const std::string& message) const {
  const ChatMessage user = {ChatRole::kUser, message};
  if (session_->position() == 0 && owed_.empty()) {
    return system_.has_value() ? template_.Conversation({{ChatRole::kSystem, *system_}, user})
                               : template_.Conversation({user});
  }
  std::vector<int32_t> ids = owed_;
  const int32_t last = owed_.empty() ? session_->tokens().back() : owed_.back();
  if (last != template_.end_of_message()) {
    ids.push_back(template_.end_of_message());
  }
  for (const std::vector<int32_t>& part : {template_.Message(user), template_.GenerationPrompt()}) {
    ids.insert(ids.end(), part.begin(), part.end());
  }
  return ids;
}

void Chat::Reset() {
  session_->Reset();
  owed_.clear();
}

absl::Status Chat::Save(const std::string& path) {
  if (!owed_.empty()) {
    const int64_t start = session_->position();
    const absl::Status status = session_->Extend(owed_);
    // Whole chunks stay in the session also where a later one failed.
    owed_.erase(owed_.begin(), owed_.begin() + (session_->position() - start));
    SHOAL_RETURN_IF_ERROR(status);
  }
  return session_->Save(path);
}

absl::Status Chat::Load(const std::string& path) {
  SHOAL_RETURN_IF_ERROR(session_->Load(path));
  owed_.clear();
  return absl::OkStatus();
}

}  // namespace shoal
