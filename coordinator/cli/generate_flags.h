// The flags that say how tokens are chosen and when a text ends.
#ifndef SHOAL_COORDINATOR_CLI_GENERATE_FLAGS_H_
#define SHOAL_COORDINATOR_CLI_GENERATE_FLAGS_H_

#include <string>

#include "absl/status/statusor.h"
#include "coordinator/cli/command_line.h"
#include "coordinator/generate.h"

namespace shoal {

struct GenerateFlags {
  GenerateOptions options;
  int64_t seed = 0;

  void Add(FlagSet& flags);
  // The options; UsageError for a value that the sampler refuses.
  absl::StatusOr<GenerateOptions> Checked() const;
};

// Prints a text as it is generated.
class TextStream {
 public:
  explicit TextStream(Console& console) : console_(console) {}
  // Prints the event's text, unless the console wants JSON; to be given to Generate.
  bool OnToken(const TokenEvent& event);
  // Prints what `text`, the whole of it, has beyond what was printed, and ends the line.
  void Finish(absl::string_view text);

 private:
  Console& console_;
  size_t printed_bytes_ = 0;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_GENERATE_FLAGS_H_
