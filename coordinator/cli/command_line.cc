// The only file that knows CLI11, which throws: nothing of it leaves.
#include "coordinator/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/io/byte_size.h"

namespace shoal {
namespace {

// Takes one value of a flag; an error's message says what is accepted.
using Setter = std::function<absl::Status(const std::string&)>;

absl::Status Expected(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("expected ", what));
}

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, IntegerRange range) {
  int64_t value = 0;
  if (absl::SimpleAtoi(text, &value) && value >= range.least && value <= range.most) {
    return value;
  }
  return Expected(range.most == std::numeric_limits<int64_t>::max()
                      ? absl::StrCat("a whole number from ", range.least, " up")
                      : absl::StrCat("a whole number from ", range.least, " to ", range.most));
}

absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text) {
  if (absl::StripAsciiWhitespace(text).empty()) {
    return Expected("at least one token id, like 17,4,92");
  }
  std::vector<int32_t> ids;
  for (const absl::string_view piece : absl::StrSplit(text, ',')) {
    if (absl::StripAsciiWhitespace(piece).empty()) {
      return Expected("token ids like 17,4,92; one is missing beside a comma");
    }
  }
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(", \t\r\n"), absl::SkipEmpty())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id) || id < 0) {
      return Expected(absl::StrCat("token ids like 17,4,92; '", word, "' is not one"));
    }
    ids.push_back(id);
  }
  return ids;
}

size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& candidates) {
  const std::optional<std::string> suggestion = Suggestion(word, candidates);
  return suggestion.has_value() ? absl::StrCat("did you mean ", *suggestion, "? ") : "";
}

}  // namespace

std::optional<std::string> Suggestion(absl::string_view word,
                                      const std::vector<std::string>& candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(word.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    const bool begun = word.size() >= 3 && absl::StartsWith(candidate, word);
    const size_t distance = begun ? 1 : EditDistance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

struct FlagSet::Impl {
  Impl(const std::string& program, const std::string& command, const std::string& summary)
      : command(absl::StrCat(program, " ", command)), app(summary, this->command) {
    app.set_help_flag("-h,--help", "Print this help");
    app.get_formatter()->column_width(34);
  }

  CLI::Option* Add(const std::string& flag, const std::string& value_name, const std::string& help,
                   const Setter& setter) {
    const CLI::callback_t callback = [flag, setter](const CLI::results_t& values) {
      for (const std::string& value : values) {
        if (const absl::Status status = setter(value); !status.ok()) {
          throw CLI::ValidationError(
              absl::StrCat(flag, " '", value, "': ", std::string(status.message())));
        }
      }
      return true;
    };
    CLI::Option* option = app.add_option(flag, callback, help);
    option->option_text(value_name)->group(heading);
    return option;
  }

  std::vector<std::string> LongNames() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) {
        names.push_back(absl::StrCat("--", name));
      }
    }
    return names;
  }

  absl::Status Usage(absl::string_view message) const {
    return UsageError(absl::StrCat(message, " (see `", command, " --help`)"));
  }

  absl::Status Unexpected() const {
    const std::vector<std::string> words = app.remaining();
    const std::string& first = words.front();
    if (first == "--" && words.size() > 1) {
      return Usage(absl::StrCat("unexpected argument '", words[1],
                                "': what follows -- is text; put flags before --"));
    }
    if (first.size() < 2 || first[0] != '-') {
      return Usage(absl::StrCat("unexpected argument '", first, "'; quote a text that has spaces"));
    }
    const std::string name = first.substr(0, first.find('='));
    return Usage(absl::StrCat("unknown flag ", name, "; ", DidYouMean(name, LongNames()),
                              "put -- before a text that begins with a dash"));
  }

  // A flag without its value, or with more than one.
  absl::Status WrongCount(const std::string& message) const {
    for (const CLI::Option* option : app.get_options()) {
      if (absl::StartsWith(message, absl::StrCat(option->get_name(), ":"))) {
        return Usage(option->count() > 1 ? absl::StrCat(option->get_name(), " is given ",
                                                        option->count(), " times; give it once")
                                         : absl::StrCat(option->get_name(), " needs a value"));
      }
    }
    return Usage(message);
  }

  absl::Status Missing() const {
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_required() && option->count() == 0) {
        return Usage(absl::StrCat(option->get_name(), " is missing"));
      }
    }
    return Usage("an argument is missing");
  }

  std::string command;
  CLI::App app;
  std::string heading = "Options";
};

FlagSet::FlagSet(const std::string& program, const std::string& command, const std::string& summary)
    : impl_(std::make_unique<Impl>(program, command, summary)) {}
FlagSet::~FlagSet() = default;

void FlagSet::Heading(const std::string& heading) { impl_->heading = heading; }

void FlagSet::RequiredArgument(const std::string& name, std::string* value,
                               const std::string& help) {
  impl_
      ->Add(name, " ", help,
            [value](const std::string& text) {
              *value = text;
              return text.empty() ? Expected("a text that is not empty") : absl::OkStatus();
            })
      ->required();
}

void FlagSet::OptionalArgument(const std::string& name, std::optional<std::string>* value,
                               const std::string& help) {
  impl_->Add(name, " ", help, [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  });
}

void FlagSet::Switch(const std::string& flag, bool* value, const std::string& help) {
  impl_->app
      .add_flag_callback(
          flag, [value] { *value = true; }, help)
      ->group(impl_->heading);
}

void FlagSet::Text(const std::string& flag, const std::string& value_name,
                   std::optional<std::string>* value, const std::string& help) {
  impl_->Add(flag, value_name, help, [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  });
}

void FlagSet::Texts(const std::string& flag, const std::string& value_name,
                    std::vector<std::string>* values, const std::string& help) {
  impl_
      ->Add(flag, value_name, help,
            [values](const std::string& text) {
              values->push_back(text);
              return text.empty() ? Expected("a text that is not empty") : absl::OkStatus();
            })
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void FlagSet::Integer(const std::string& flag, int64_t* value, IntegerRange range,
                      const std::string& help) {
  impl_->Add(flag, "N", help, [value, range](const std::string& text) {
    const absl::StatusOr<int64_t> parsed = ParseInteger(text, range);
    *value = parsed.value_or(*value);
    return parsed.status();
  });
}

void FlagSet::Integer(const std::string& flag, std::optional<int64_t>* value, IntegerRange range,
                      const std::string& help) {
  impl_->Add(flag, "N", help, [value, range](const std::string& text) {
    const absl::StatusOr<int64_t> parsed = ParseInteger(text, range);
    *value = parsed.value_or(0);
    return parsed.status();
  });
}

void FlagSet::Real(const std::string& flag, double* value, const std::string& help) {
  impl_->Add(flag, "X", help, [value](const std::string& text) {
    return absl::SimpleAtod(text, value) && std::isfinite(*value) ? absl::OkStatus()
                                                                  : Expected("a number");
  });
}

void FlagSet::ByteSize(const std::string& flag, std::optional<uint64_t>* value,
                       const std::string& help) {
  impl_->Add(flag, "SIZE", help, [value](const std::string& text) {
    const absl::StatusOr<uint64_t> parsed = ParseByteSize(text);
    *value = parsed.value_or(0);
    return parsed.status();
  });
}

void FlagSet::Choice(const std::string& flag, const std::vector<std::string>& choices,
                     std::optional<std::string>* value, const std::string& help) {
  impl_->Add(flag, absl::StrJoin(choices, "|"), help, [value, choices](const std::string& text) {
    *value = text;
    return std::find(choices.begin(), choices.end(), text) != choices.end()
               ? absl::OkStatus()
               : Expected(absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
  });
}

void FlagSet::Ids(const std::string& flag, std::optional<std::vector<int32_t>>* value,
                  const std::string& help) {
  impl_->Add(flag, "N,N,...", help, [value](const std::string& text) {
    absl::StatusOr<std::vector<int32_t>> parsed = ParseIds(text);
    if (!parsed.ok()) {
      return parsed.status();
    }
    *value = *std::move(parsed);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<std::string>> FlagSet::Parse(std::span<const std::string> args,
                                                          const std::string& examples) {
  impl_->app.footer(absl::StrCat("Examples:\n", examples));
  try {
    // CLI11 takes its vector from the back.
    impl_->app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  } catch (const CLI::CallForHelp&) {
    return impl_->app.help();
  } catch (const CLI::ExtrasError&) {
    return impl_->Unexpected();
  } catch (const CLI::RequiredError&) {
    return impl_->Missing();
  } catch (const CLI::ArgumentMismatch& error) {
    return impl_->WrongCount(error.what());
  } catch (const CLI::Error& error) {
    return impl_->Usage(error.what());
  }
  return std::nullopt;
}

}  // namespace shoal
