#include "coordinator/cli/exit_code.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/memory_plan.h"

namespace shoal {
namespace {

constexpr absl::string_view kMark = "shoal/exit_code";

}  // namespace

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  status.SetPayload(kMark, absl::Cord(absl::StrCat(static_cast<int>(code))));
  return status;
}

absl::Status UsageError(absl::string_view message) {
  return WithExitCode(absl::InvalidArgumentError(message), ExitCode::kUsage);
}

ExitCode ExitCodeOf(const absl::Status& status) {
  const absl::optional<absl::Cord> mark = status.GetPayload(kMark);
  int code = 0;
  if (mark.has_value() && absl::SimpleAtoi(std::string(*mark), &code)) {
    return static_cast<ExitCode>(code);
  }
  if (IsBelowFloor(status)) {
    return ExitCode::kBudgetBelowFloor;
  }
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kDataDamaged;
    case absl::StatusCode::kCancelled:
      return ExitCode::kInterrupted;
    default:
      return ExitCode::kFailure;
  }
}

}  // namespace shoal
