// Shoal inside another program: opens a container, generates, and keeps the session in a file.
//   embed DIR SESSION_FILE
#include <cstdio>

#include "coordinator/generate.h"
#include "coordinator/model.h"
#include "coordinator/session.h"

static absl::Status Tell(const char* directory, const char* session_file) {
  shoal::ModelOptions options;
  options.budget_bytes = uint64_t{256} << 20;  // a ceiling: below the model's floor, Open fails
  const auto model = shoal::Model::Open(directory, options);
  if (!model.ok()) return model.status();
  std::printf("%s\n", shoal::FormatPlan((*model)->mode().plan).c_str());

  const auto session = (*model)->NewSession();
  if (!session.ok()) return session.status();
  const auto print_piece = [](const shoal::TokenEvent& event) {
    std::printf("%.*s", static_cast<int>(event.text.size()), event.text.data());
    return std::fflush(stdout) == 0;  // false would end the generation
  };
  const auto prompt = (*model)->tokenizer().EncodeText("Once upon a time");
  const auto result = shoal::Generate(**model, **session, prompt, {.max_tokens = 32}, print_piece);
  if (!result.ok()) return result.status();

  if (const auto saved = (*session)->Save(session_file); !saved.ok()) return saved;
  (*session)->Reset();
  if (const auto loaded = (*session)->Load(session_file); !loaded.ok()) return loaded;
  std::printf("\nRestored %d tokens.\n", static_cast<int>((*session)->position()));
  return absl::OkStatus();
}

int main(int argc, char** argv) {
  const absl::Status status =
      argc == 3 ? Tell(argv[1], argv[2]) : absl::InvalidArgumentError("usage: embed DIR FILE");
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
