// Progress of long work on standard error.
#ifndef SHOAL_COORDINATOR_CLI_PROGRESS_H_
#define SHOAL_COORDINATOR_CLI_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/sync/clock.h"

namespace shoal {

struct ByteProgress {
  std::string step;
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
  uint64_t bytes_skipped = 0;  // of done: not worked on now, so no part of the rate
};

// "layer 3 experts  42.0 %  123.4 MB/s  ETA 1m5s"; without rate and ETA while nothing is known.
std::string FormatByteProgress(const ByteProgress& progress, absl::Duration elapsed);

struct TokenProgress {
  std::string step;
  int64_t done = 0;
  int64_t total = 0;
};

// "prompt  512 of 4096 tokens  12.3 tokens/s  ETA 4m52s"; without rate and ETA while nothing is
// known.
std::string FormatTokenProgress(const TokenProgress& progress, absl::Duration elapsed);

// Shows the newest state of some work: on a terminal in one line that is written over, ten times a
// second at most; elsewhere as a new line every five seconds. One thread at a time.
class ProgressLine {
 public:
  // `write` gets the bytes. `clock` outlives this object.
  ProgressLine(const Clock& clock, bool terminal, std::function<void(absl::string_view)> write);
  // Clears the line of a terminal.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Update(const ByteProgress& progress);
  void UpdateTokens(const TokenProgress& progress);

 private:
  template <typename Progress>
  void Show(const Progress& progress, std::string (*format)(const Progress&, absl::Duration));

  const Clock& clock_;
  const bool terminal_;
  const std::function<void(absl::string_view)> write_;
  const absl::Time start_;
  absl::Time next_;
  bool shown_ = false;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CLI_PROGRESS_H_
