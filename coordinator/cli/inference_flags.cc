#include "coordinator/cli/inference_flags.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_util.h"

namespace shoal {
namespace {

constexpr int64_t kMostSeconds = 10'000'000;

// What the directory is called, as far as a model may be called so.
std::string DefaultName(const std::string& directory) {
  std::error_code error;
  std::string name = std::filesystem::weakly_canonical(directory, error).filename().string();
  std::replace_if(
      name.begin(), name.end(),
      [](char c) {
        return !absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '_';
      },
      '-');
  constexpr size_t kMostBytes = 63;
  return name.empty() ? "model" : name.substr(0, kMostBytes);
}

}  // namespace

void InferenceFlags::Add(FlagSet& flags) {
  flags.Heading("Clients");
  flags.Text("--name", "NAME", &name,
             "What clients may call the model (default: as DIR is called)");
  flags.Integer("--sessions", &num_sessions, {1, 1024},
                "Answers that are computed at a time, in turn; each takes\nmemory (default 1)");
  flags.Integer("--queue", &max_waiting, {0, 10'000},
                "Calls that wait behind them; one more is refused\n(default 16)");
  flags.Integer("--client-calls", &client_calls, {1, 20'000},
                "Of these, how many one certificate, key or address may have\n(default: half, "
                "and no fewer than the sessions)");
  flags.Integer("--max-time", &max_time_s, {1, kMostSeconds},
                "Seconds that a call may take, the wait included\n(default: as long as its client "
                "wants)");
  flags.Integer("--drain-time", &drain_time_s, {0, kMostSeconds},
                "Seconds that answers may go on after SIGTERM or Ctrl-C\n(default 30)");
}

absl::StatusOr<InferenceService::Options> InferenceFlags::Options(
    const std::string& directory) const {
  InferenceService::Options options;
  options.model_name = name.value_or(DefaultName(directory));
  if (const absl::Status status = CheckModelName(options.model_name); !status.ok()) {
    return UsageError(absl::StrCat("--name: ", status.message()));
  }
  options.num_sessions = static_cast<int>(num_sessions);
  options.max_waiting = max_waiting;
  options.max_of_caller = client_calls;
  if (max_time_s) {
    options.max_time = absl::Seconds(*max_time_s);
  }
  options.log = [](const LogLine& line) { WriteLogLine("shoal", line); };
  return options;
}

}  // namespace shoal
