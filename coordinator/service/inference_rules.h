// The rules that requests of the Inference service must keep.
#ifndef SHOAL_COORDINATOR_SERVICE_INFERENCE_RULES_H_
#define SHOAL_COORDINATOR_SERVICE_INFERENCE_RULES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/generate.h"

namespace shoal {

namespace v1 {
class ChatRequest;
class DetokenizeRequest;
class GenerateRequest;
class GenerationOptions;
class InferenceLimits;
class TokenizeRequest;
}  // namespace v1

// A request that keeps the rules.
struct GenerationInput {
  // A text, ids, or a conversation.
  std::variant<std::string, std::vector<int32_t>, std::vector<ChatMessage>> prompt;
  GenerateOptions options;
};

// Thread-safe. Errors are FieldErrors, but for MODEL_UNKNOWN; they name the field, what it holds and what is
// accepted. Sizes are looked at before anything of that size is made.
class InferenceRules {
 public:
  struct Model {
    std::string name;
    int64_t vocab_size = 0;
    int64_t context_tokens = 0;
  };
  static constexpr int64_t kMaxMessages = 1024;
  static constexpr int64_t kMaxStopStrings = 16;
  static constexpr int64_t kMaxStopStringBytes = 256;
  static constexpr int64_t kMaxStopIds = 64;

  explicit InferenceRules(Model model);

  absl::Status CheckModel(const std::string& name) const;
  absl::StatusOr<GenerationInput> CheckGenerate(const v1::GenerateRequest& request) const;
  absl::StatusOr<GenerationInput> CheckChat(const v1::ChatRequest& request) const;
  absl::Status CheckTokenize(const v1::TokenizeRequest& request) const;
  absl::StatusOr<std::vector<int32_t>> CheckDetokenize(const v1::DetokenizeRequest& request) const;

  // The tokens of an input, at least one and no more than the context holds. `chat` may be null where the
  // input is not a conversation.
  absl::StatusOr<std::vector<int32_t>> PromptIds(const GenerationInput& input,
                                                 const Tokenizer& tokenizer,
                                                 const ChatTemplate* chat) const;

  void FillLimits(v1::InferenceLimits* limits) const;
  // No request that keeps the rules is larger.
  int64_t MaxRequestBytes() const;
  int64_t max_text_bytes() const { return max_text_bytes_; }

 private:
  absl::Status CheckText(absl::string_view field, const std::string& text) const;
  absl::StatusOr<GenerateOptions> CheckOptions(const v1::GenerationOptions& options) const;
  absl::Status CheckStops(const v1::GenerationOptions& options) const;
  template <typename Ids>
  absl::StatusOr<std::vector<int32_t>> CheckIds(absl::string_view field, const Ids& ids,
                                                int64_t most) const;

  const Model model_;
  const int64_t max_text_bytes_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_SERVICE_INFERENCE_RULES_H_
