#include "coordinator/service/inference_rules.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/utf8.h"
#include "coordinator/service/error_details.h"
#include "shoal/v1/inference.pb.h"

namespace shoal {
namespace {

// More than three times what a token of ordinary text has.
constexpr int64_t kTextBytesPerToken = 16;
constexpr int64_t kLeastTextBytes = 64 * 1024;
constexpr int64_t kMostTextBytes = int64_t{16} << 20;

// Where a text stops being UTF-8; none where it never does.
std::optional<size_t> FirstBadByte(absl::string_view text) {
  absl::string_view rest = text;
  while (!rest.empty()) {
    const Utf8Step step = DecodeUtf8(rest);
    if (step.kind != Utf8Step::Kind::kCharacter) {
      return text.size() - rest.size();
    }
    rest.remove_prefix(step.length);
  }
  return std::nullopt;
}

absl::Status CheckCount(absl::string_view field, int64_t count, int64_t most,
                        absl::string_view what) {
  return count <= most ? absl::OkStatus()
                       : FieldError(field, absl::StrCat("has ", count, " ", what, "; at most ",
                                                        most, " are accepted"));
}

absl::Status CheckUtf8(absl::string_view field, absl::string_view text) {
  const std::optional<size_t> bad = FirstBadByte(text);
  return bad ? FieldError(field, absl::StrCat("is not UTF-8 from byte ", *bad, " on"))
             : absl::OkStatus();
}

absl::StatusOr<ChatRole> ToRole(absl::string_view field, v1::ChatRole role) {
  switch (role) {
    case v1::CHAT_ROLE_SYSTEM:
      return ChatRole::kSystem;
    case v1::CHAT_ROLE_USER:
      return ChatRole::kUser;
    case v1::CHAT_ROLE_ASSISTANT:
      return ChatRole::kAssistant;
    case v1::CHAT_ROLE_TOOL:
      return ChatRole::kTool;
    default:
      return FieldError(field, absl::StrCat("is ", static_cast<int>(role),
                                            "; CHAT_ROLE_SYSTEM (1), _USER (2), _ASSISTANT (3) "
                                            "and _TOOL (4) are accepted"));
  }
}

}  // namespace

InferenceRules::InferenceRules(Model model)
    : model_(std::move(model)),
      max_text_bytes_(
          std::clamp(std::min(model_.context_tokens, kMostTextBytes) * kTextBytesPerToken,
                     kLeastTextBytes, kMostTextBytes)) {}

absl::Status InferenceRules::CheckModel(const std::string& name) const {
  if (name.empty() || name == model_.name) {
    return absl::OkStatus();
  }
  constexpr size_t kMostShown = 64;
  return ClientError(absl::StatusCode::kNotFound, "MODEL_UNKNOWN",
                     absl::StrCat("model: ", name.substr(0, kMostShown), " is not served here; ",
                                  model_.name, " is, also where the field is empty"));
}

absl::StatusOr<GenerationInput> InferenceRules::CheckGenerate(
    const v1::GenerateRequest& request) const {
  SHOAL_RETURN_IF_ERROR(CheckModel(request.model()));
  GenerationInput input;
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      SHOAL_RETURN_IF_ERROR(CheckText("text", request.text()));
      input.prompt = request.text();
      break;
    case v1::GenerateRequest::kTokenIds: {
      SHOAL_ASSIGN_OR_RETURN(input.prompt, CheckIds("token_ids.ids", request.token_ids().ids(),
                                                    model_.context_tokens));
      break;
    }
    case v1::GenerateRequest::PROMPT_NOT_SET:
      return FieldError("prompt", "is absent; give text or token_ids");
  }
  SHOAL_ASSIGN_OR_RETURN(input.options, CheckOptions(request.options()));
  return input;
}

absl::StatusOr<GenerationInput> InferenceRules::CheckChat(const v1::ChatRequest& request) const {
  SHOAL_RETURN_IF_ERROR(CheckModel(request.model()));
  if (request.messages().empty()) {
    return FieldError("messages", "is empty; give at least one message");
  }
  SHOAL_RETURN_IF_ERROR(CheckCount("messages", request.messages_size(), kMaxMessages, "messages"));
  size_t bytes = 0;
  for (const v1::ChatMessage& message : request.messages()) {
    bytes += message.content().size();
  }
  SHOAL_RETURN_IF_ERROR(
      CheckCount("messages", static_cast<int64_t>(bytes), max_text_bytes_, "bytes of content"));
  std::vector<ChatMessage> messages;
  messages.reserve(static_cast<size_t>(request.messages_size()));
  for (const v1::ChatMessage& message : request.messages()) {
    const std::string field = absl::StrCat("messages[", messages.size(), "]");
    SHOAL_ASSIGN_OR_RETURN(const ChatRole role,
                           ToRole(absl::StrCat(field, ".role"), message.role()));
    SHOAL_RETURN_IF_ERROR(CheckText(absl::StrCat(field, ".content"), message.content()));
    messages.push_back({role, message.content()});
  }
  if (messages.back().role == ChatRole::kAssistant) {
    return FieldError(absl::StrCat("messages[", messages.size() - 1, "].role"),
                      "is CHAT_ROLE_ASSISTANT; the last message is what the assistant answers");
  }
  GenerationInput input;
  input.prompt = std::move(messages);
  SHOAL_ASSIGN_OR_RETURN(input.options, CheckOptions(request.options()));
  return input;
}

absl::Status InferenceRules::CheckTokenize(const v1::TokenizeRequest& request) const {
  SHOAL_RETURN_IF_ERROR(CheckModel(request.model()));
  return CheckText("text", request.text());
}

absl::StatusOr<std::vector<int32_t>> InferenceRules::CheckDetokenize(
    const v1::DetokenizeRequest& request) const {
  SHOAL_RETURN_IF_ERROR(CheckModel(request.model()));
  return CheckIds("ids", request.ids(), model_.context_tokens);
}

absl::StatusOr<std::vector<int32_t>> InferenceRules::PromptIds(const GenerationInput& input,
                                                               const Tokenizer& tokenizer,
                                                               const ChatTemplate* chat) const {
  std::vector<int32_t> ids;
  absl::string_view field = "text";
  if (const auto* text = std::get_if<std::string>(&input.prompt)) {
    ids = tokenizer.EncodeText(*text);
  } else if (const auto* given = std::get_if<std::vector<int32_t>>(&input.prompt)) {
    field = "token_ids.ids";
    ids = *given;
  } else {
    field = "messages";
    ids = chat->Conversation(std::get<std::vector<ChatMessage>>(input.prompt));
  }
  if (ids.empty()) {
    return FieldError(field, "has no token; give at least one");
  }
  if (std::ssize(ids) > model_.context_tokens) {
    return FieldError(field,
                      absl::StrCat("has ", ids.size(), " tokens; the context holds ",
                                   model_.context_tokens, ", the answer included"),
                      "PROMPT_TOO_LONG");
  }
  return ids;
}

void InferenceRules::FillLimits(v1::InferenceLimits* limits) const {
  limits->set_text_bytes(static_cast<uint32_t>(max_text_bytes_));
  limits->set_messages(kMaxMessages);
  limits->set_stop_strings(kMaxStopStrings);
  limits->set_stop_string_bytes(kMaxStopStringBytes);
  limits->set_stop_token_ids(kMaxStopIds);
  limits->set_token_ids(static_cast<uint32_t>(model_.context_tokens));
}

int64_t InferenceRules::MaxRequestBytes() const {
  constexpr int64_t kIdBytes = 5;        // the longest varint of 32 bits
  constexpr int64_t kTagsAndSizes = 16;  // of a message of a conversation, or of a stop string
  constexpr int64_t kTheRest = 4096;     // model, numbers
  return max_text_bytes_ + kMaxMessages * kTagsAndSizes + model_.context_tokens * kIdBytes +
         kMaxStopStrings * (kMaxStopStringBytes + kTagsAndSizes) + kMaxStopIds * kIdBytes +
         kTheRest;
}

absl::Status InferenceRules::CheckText(absl::string_view field, const std::string& text) const {
  SHOAL_RETURN_IF_ERROR(
      CheckCount(field, static_cast<int64_t>(text.size()), max_text_bytes_, "bytes"));
  return CheckUtf8(field, text);
}

absl::StatusOr<GenerateOptions> InferenceRules::CheckOptions(
    const v1::GenerationOptions& options) const {
  GenerateOptions checked;
  if (options.has_max_tokens()) {
    checked.max_tokens = options.max_tokens();
    if (checked.max_tokens > model_.context_tokens) {
      return FieldError("options.max_tokens",
                        absl::StrCat("is ", checked.max_tokens, "; the context holds ",
                                     model_.context_tokens, " tokens"));
    }
  }
  SHOAL_RETURN_IF_ERROR(CheckStops(options));
  checked.stop.assign(options.stop().begin(), options.stop().end());
  SHOAL_ASSIGN_OR_RETURN(checked.stop_ids,
                         CheckIds("options.stop_token_ids", options.stop_token_ids(), kMaxStopIds));
  checked.ignore_end_of_text = options.ignore_end_of_text();
  SamplingOptions& sampling = checked.sampling;
  sampling.temperature = options.temperature();
  sampling.top_k = options.top_k();
  sampling.top_p = options.has_top_p() ? options.top_p() : 1.0;
  sampling.min_p = options.min_p();
  sampling.repetition_penalty =
      options.has_repetition_penalty() ? options.repetition_penalty() : 1.0;
  sampling.seed = options.seed();
  if (const absl::Status status = ValidateSampling(sampling); !status.ok()) {
    // It begins with the field's name, which is the same here.
    const absl::string_view message = status.message();
    const size_t end = std::min(message.find(' '), message.size() - 1);
    return FieldError(absl::StrCat("options.", message.substr(0, end)), message.substr(end + 1));
  }
  return checked;
}

absl::Status InferenceRules::CheckStops(const v1::GenerationOptions& options) const {
  SHOAL_RETURN_IF_ERROR(
      CheckCount("options.stop", options.stop_size(), kMaxStopStrings, "strings"));
  for (int i = 0; i < options.stop_size(); ++i) {
    const std::string field = absl::StrCat("options.stop[", i, "]");
    const std::string& stop = options.stop(i);
    if (stop.empty()) {
      return FieldError(field, "is empty; leave it out instead");
    }
    SHOAL_RETURN_IF_ERROR(
        CheckCount(field, static_cast<int64_t>(stop.size()), kMaxStopStringBytes, "bytes"));
    SHOAL_RETURN_IF_ERROR(CheckUtf8(field, stop));
  }
  return absl::OkStatus();
}

template <typename Ids>
absl::StatusOr<std::vector<int32_t>> InferenceRules::CheckIds(absl::string_view field,
                                                              const Ids& ids, int64_t most) const {
  SHOAL_RETURN_IF_ERROR(CheckCount(field, ids.size(), most, "ids"));
  std::vector<int32_t> checked;
  checked.reserve(static_cast<size_t>(ids.size()));
  for (const uint32_t id : ids) {
    if (id >= static_cast<uint64_t>(model_.vocab_size)) {
      return FieldError(
          absl::StrCat(field, "[", checked.size(), "]"),
          absl::StrCat("is ", id, "; ids of this model are 0 to ", model_.vocab_size - 1));
    }
    checked.push_back(static_cast<int32_t>(id));
  }
  return checked;
}

}  // namespace shoal
