// The filling of nodes as people see it: while it goes on, and its result.
#ifndef SHOAL_COORDINATOR_CLI_FILL_REPORT_H_
#define SHOAL_COORDINATOR_CLI_FILL_REPORT_H_

#include <span>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "coordinator/cli/console.h"
#include "coordinator/pool/pool_filler.h"

namespace shoal {

// FillNodes, with a line of progress on standard error.
absl::Status FillWithProgress(const LentModel& model, std::span<FillingNode> nodes, int at_once,
                              const std::stop_token& stop, Console& console);

// A line for each node that was asked for.
std::string FormatFilled(std::span<const FillingNode> nodes);
Json FilledJson(std::span<const FillingNode> nodes);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_FILL_REPORT_H_
