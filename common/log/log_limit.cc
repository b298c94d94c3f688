#include "common/log/log_limit.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace shoal {

LogLimit::LogLimit(LogWriter write, int lines_a_minute, const Clock& clock)
    : write_(std::move(write)), lines_a_minute_(lines_a_minute), clock_(clock) {}

void LogLimit::Add(const LogLine& line) {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  if (now - minute_ >= absl::Minutes(1)) {
    if (left_out_ > 0) {
      const std::string left_out = absl::StrCat(left_out_, " more such lines were left out");
      write_({.message = left_out});
    }
    minute_ = now;
    lines_ = 0;
    left_out_ = 0;
  }
  if (lines_ == lines_a_minute_) {
    ++left_out_;
    return;
  }
  ++lines_;
  write_(line);
}

}  // namespace shoal
