#include "coordinator/cli/progress.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace shoal {
namespace {

void AppendEta(double seconds, std::string& text) {
  absl::StrAppend(&text, "  ETA ",
                  absl::FormatDuration(absl::Ceil(absl::Seconds(seconds), absl::Seconds(1))));
}

}  // namespace

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
    AppendEta(static_cast<double>(progress.bytes_total - progress.bytes_done) / bytes_per_second,
              text);
  }
  return text;
}

std::string FormatTokenProgress(const TokenProgress& progress, absl::Duration elapsed) {
  std::string text =
      absl::StrFormat("%s  %d of %d tokens", progress.step, progress.done, progress.total);
  const double seconds = absl::ToDoubleSeconds(elapsed);
  if (progress.done <= 0 || seconds <= 0) {
    return text;
  }
  const double tokens_per_second = static_cast<double>(progress.done) / seconds;
  absl::StrAppendFormat(&text, "  %.2f tokens/s", tokens_per_second);
  if (progress.total > progress.done) {
    AppendEta(static_cast<double>(progress.total - progress.done) / tokens_per_second, text);
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

void ProgressLine::Update(const ByteProgress& progress) { Show(progress, FormatByteProgress); }

void ProgressLine::UpdateTokens(const TokenProgress& progress) {
  Show(progress, FormatTokenProgress);
}

template <typename Progress>
void ProgressLine::Show(const Progress& progress,
                        std::string (*format)(const Progress&, absl::Duration)) {
  const absl::Time now = clock_.Now();
  if (now < next_) {
    return;
  }
  next_ = now + (terminal_ ? absl::Milliseconds(100) : absl::Seconds(5));
  shown_ = true;
  const std::string text = format(progress, now - start_);
  write_(terminal_ ? absl::StrCat("\r", text, "\x1b[K") : absl::StrCat(text, "\n"));
}

}  // namespace shoal
