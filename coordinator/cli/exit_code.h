// How `shoal` ends. Scripts depend on these numbers; docs/operations.md repeats them.
#ifndef SHOAL_COORDINATOR_CLI_EXIT_CODE_H_
#define SHOAL_COORDINATOR_CLI_EXIT_CODE_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace shoal {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,           // anything that has no number of its own
  kUsage = 2,             // an unknown command or flag, or a value out of its range
  kBudgetBelowFloor = 3,  // the memory (budget, or what is free) is below the floor
  kDataDamaged = 4,       // a file differs from its checksum, or `inspect --verify` found problems
  kInterrupted = 130,     // Ctrl-C
};

// Marks an error with the code to exit with, where it does not follow from the error's own code.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// INVALID_ARGUMENT that ends with kUsage.
absl::Status UsageError(absl::string_view message);

// The code for an error: its mark, else kBudgetBelowFloor for CheckFits's, kDataDamaged for
// DATA_LOSS, kInterrupted for CANCELLED, kFailure for everything else.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_EXIT_CODE_H_
