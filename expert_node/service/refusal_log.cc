#include "expert_node/service/refusal_log.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace shoal {
namespace {

constexpr size_t kMostBytes = 300;

}  // namespace

RefusalLog::RefusalLog(Write write, int lines_a_minute, const Clock& clock)
    : write_(std::move(write)), lines_a_minute_(lines_a_minute), clock_(clock) {}

void RefusalLog::Add(absl::string_view line) {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_.Now();
  if (now - minute_ >= absl::Minutes(1)) {
    if (left_out_ > 0) {
      write_(absl::StrCat("refused: ", left_out_, " more, not listed"));
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
  write_(absl::StrCat("refused: ", absl::CHexEscape(line.substr(0, kMostBytes))));
}

}  // namespace shoal
