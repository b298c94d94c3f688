#include "coordinator/cli/progress.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal {

std::string FormatByteProgress(const ByteProgress& progress, absl::Duration elapsed) {
  std::string text = progress.step;
  if (progress.bytes_total > 0) {
    absl::StrAppendFormat(&text, "  %.1f %%",
                          100.0 * static_cast<double>(progress.bytes_done) /
                              static_cast<double>(progress.bytes_total));
  }
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (progress.bytes_done <= progress.bytes_skipped || seconds <= 0) {
    return text;
  }
  const double bytes_per_second =
      static_cast<double>(progress.bytes_done - progress.bytes_skipped) / seconds;
  absl::StrAppendFormat(&text, "  %.1f MB/s", bytes_per_second / 1e6);
  if (progress.bytes_total > progress.bytes_done) {
    const double left =
        static_cast<double>(progress.bytes_total - progress.bytes_done) / bytes_per_second;
    absl::StrAppend(&text, "  ETA ",
                    absl::FormatDuration(absl::Ceil(absl::Seconds(left), absl::Seconds(1))));
  }
  return text;
}

ProgressLine::ProgressLine(const Clock& clock, bool terminal,
                           std::function<void(absl::string_view)> write)
    : clock_(clock),
      terminal_(terminal),
      write_(std::move(write)),
      start_(clock.Now()),
      next_(start_ + (terminal ? absl::ZeroDuration() : absl::Seconds(5))) {}

ProgressLine::~ProgressLine() {
  if (terminal_ && shown_) {
    write_("\r\x1b[K");
  }
}

void ProgressLine::Update(const ByteProgress& progress) {
  const absl::Time now = clock_.Now();
  if (now < next_) {
    return;
  }
  next_ = now + (terminal_ ? absl::Milliseconds(100) : absl::Seconds(5));
  shown_ = true;
  const std::string text = FormatByteProgress(progress, now - start_);
  write_(terminal_ ? absl::StrCat("\r", text, "\x1b[K") : absl::StrCat(text, "\n"));
}

}  // namespace shoal
