// A conversation: a session and the chat layout around what user and model say.
#ifndef SHOAL_COORDINATOR_CHAT_H_
#define SHOAL_COORDINATOR_CHAT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tokenizer/chat_template.h"
#include "coordinator/generate.h"
#include "coordinator/model.h"
#include "coordinator/session.h"

namespace shoal {

// Not thread-safe. The model outlives it. Messages are ordinary text: nothing in them becomes a
// control token.
class Chat {
 public:
  // `system` is what the model is told first; absent: the layout's own sentence.
  // Model::NewSession's and ChatTemplate::Make's errors.
  static absl::StatusOr<Chat> Make(Model& model, std::optional<std::string> system);

  // Gives the model a user's message and generates its answer, as Generate does. An answer that did
  // not end by itself (length, stop string, stop) is closed before the next message. After a stop
  // or an error the conversation can go on: what the session does not hold yet is computed with the
  // next message; where an error came before anything was run, the message counts as not given.
  absl::StatusOr<GenerateResult> Answer(const std::string& message, const GenerateOptions& options,
                                        const std::function<bool(const TokenEvent&)>& on_token,
                                        std::stop_token stop = {});

  // As Session's; Save computes first what the session does not hold yet.
  void Reset();
  absl::Status Save(const std::string& path);
  absl::Status Load(const std::string& path);

  const Session& session() const { return *session_; }

 private:
  Chat(const Model& model, const ChatTemplate& chat_template, std::unique_ptr<Session> session,
       std::optional<std::string> system);
  std::vector<int32_t> Turn(const std::string& message) const;

  const Model* model_;
  ChatTemplate template_;
  std::unique_ptr<Session> session_;
  std::optional<std::string> system_;
  std::vector<int32_t> owed_;  // follow the session's tokens, not computed yet
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CHAT_H_
