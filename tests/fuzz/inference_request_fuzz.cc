// Feeds requests of the client API to their rules, and what is accepted to the bundled model's tokenizer.
// The first byte says which message the rest is.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "common/tokenizer/chat_template.h"
#include "common/tokenizer/tokenizer.h"
#include "coordinator/service/error_details.h"
#include "coordinator/service/inference_rules.h"
#include "shoal/v1/inference.pb.h"
#include "tests/fuzz/parse_message.h"

namespace {

using ::shoal::testing::ParseMessage;

constexpr int64_t kVocab = 4096;
constexpr int64_t kContext = 512;

void Expect(bool condition) {
  if (!condition) {
    std::abort();
  }
}

const shoal::Tokenizer& BundledTokenizer() {
  static const shoal::Tokenizer* const tokenizer = [] {
    auto loaded = shoal::Tokenizer::Load(SHOAL_SOURCE_DIR "/examples/tiny-kimi-linear", kVocab);
    Expect(loaded.ok());
    return std::move(loaded).value().release();
  }();
  return *tokenizer;
}

// Refusals are of the two kinds that a client can do something about.
void ExpectRefusal(const absl::Status& status) {
  Expect(status.ok() || status.code() == absl::StatusCode::kInvalidArgument ||
         status.code() == absl::StatusCode::kNotFound);
  // Told as it is: the rules' errors are written for clients.
  Expect(shoal::ForClient(status, 1) == status);
}

void CheckInput(const shoal::InferenceRules& rules,
                const absl::StatusOr<shoal::GenerationInput>& input, size_t message_bytes) {
  ExpectRefusal(input.status());
  if (!input.ok()) {
    return;
  }
  Expect(static_cast<int64_t>(message_bytes) <= rules.MaxRequestBytes());
  Expect(shoal::ValidateSampling(input->options.sampling).ok());
  Expect(input->options.max_tokens >= 0 && input->options.max_tokens <= kContext);
  const auto chat = shoal::ChatTemplate::Make(BundledTokenizer());
  Expect(chat.ok());
  const auto ids = rules.PromptIds(*input, BundledTokenizer(), &*chat);
  ExpectRefusal(ids.status());
  if (ids.ok()) {
    Expect(!ids->empty() && static_cast<int64_t>(ids->size()) <= kContext);
    for (const int32_t id : *ids) {
      Expect(id >= 0 && id < kVocab);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) {
    return 0;
  }
  static const auto* const rules = new shoal::InferenceRules({"tiny", kVocab, kContext});
  const uint8_t kind = data[0] % 4;
  ++data;
  --size;
  if (kind == 0) {
    if (const auto request = ParseMessage<shoal::v1::GenerateRequest>(data, size)) {
      CheckInput(*rules, rules->CheckGenerate(*request), request->ByteSizeLong());
    }
  } else if (kind == 1) {
    if (const auto request = ParseMessage<shoal::v1::ChatRequest>(data, size)) {
      CheckInput(*rules, rules->CheckChat(*request), request->ByteSizeLong());
    }
  } else if (kind == 2) {
    if (const auto request = ParseMessage<shoal::v1::TokenizeRequest>(data, size)) {
      ExpectRefusal(rules->CheckTokenize(*request));
    }
  } else if (const auto request = ParseMessage<shoal::v1::DetokenizeRequest>(data, size)) {
    const auto ids = rules->CheckDetokenize(*request);
    ExpectRefusal(ids.status());
    Expect(!ids.ok() || static_cast<int64_t>(ids->size()) <= kContext);
  }
  return 0;
}
