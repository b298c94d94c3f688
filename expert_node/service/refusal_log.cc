#include "expert_node/service/refusal_log.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace shoal {
namespace {

constexpr size_t kMostBytesOfARefusal = 300;  // all of it may be a stranger's
constexpr size_t kMostBytes = 1000;

}  // namespace

RefusalLog::RefusalLog(Write write, int lines_a_minute, const Clock& clock)
    : limit_([write = std::move(write)](const LogLine& line) { write(line.message); },
             lines_a_minute, clock) {}

void RefusalLog::Add(absl::string_view line) {
  Note(absl::StrCat("refused: ", line.substr(0, kMostBytesOfARefusal)));
}

void RefusalLog::Note(absl::string_view line) {
  const std::string message = absl::StrReplaceAll(absl::CHexEscape(line.substr(0, kMostBytes)),
                                                  {{"\\'", "'"}, {"\\\"", "\""}});
  limit_.Add({.message = message});
}

}  // namespace shoal
