#include "coordinator/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace shoal {
namespace {

// Length of the longest end of `text` that is a beginning of `stop`.
size_t OverlapLength(absl::string_view text, absl::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size()); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) {
      return length;
    }
  }
  return 0;
}

}  // namespace

std::string StopMatcher::Push(absl::string_view piece) {
  if (found_) {
    return "";
  }
  held_.append(piece.data(), piece.size());
  size_t first_end = std::string::npos;
  size_t first_begin = 0;
  size_t overlap = 0;
  for (const std::string& stop : stops_) {
    overlap = std::max(overlap, OverlapLength(held_, stop));
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) {
      continue;
    }
    const size_t end = begin + stop.size();
    if (end < first_end || (end == first_end && begin < first_begin)) {
      first_end = end;
      first_begin = begin;
    }
  }
  found_ = first_end != std::string::npos;
  const size_t released = found_ ? first_begin : held_.size() - overlap;
  std::string text = held_.substr(0, released);
  held_.erase(0, found_ ? held_.size() : released);
  return text;
}

std::string StopMatcher::Flush() { return std::exchange(held_, std::string()); }

}  // namespace shoal
