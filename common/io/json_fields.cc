#include "common/io/json_fields.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr size_t kMaxDepth = 64;
// A parsed value takes about 100 bytes, whatever its text takes. The largest file we know, the
// tensor index of Kimi K3, has less than half as many.
constexpr size_t kMaxValues = size_t{1} << 21;
constexpr size_t kMaxReason = 160;

// The parser's words without its own prefix, safe to print and short: they quote the text.
std::string Reason(absl::string_view what) {
  if (const size_t end = what.find("] "); absl::StartsWith(what, "[json") && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  std::string printable(what.substr(0, kMaxReason));
  std::replace_if(
      printable.begin(), printable.end(), [](char c) { return !absl::ascii_isprint(c); }, '?');
  return what.size() <= kMaxReason ? printable : absl::StrCat(printable, "...");
}

// Looks at the structure alone and keeps no values. Returning false ends the parse.
class StructureCheck : public nlohmann::json_sax<Json> {
 public:
  explicit StructureCheck(absl::string_view source) : source_(source) {}
  const absl::Status& status() const { return status_; }

  bool null() override { return Count(); }
  bool boolean(bool) override { return Count(); }
  bool number_integer(number_integer_t) override { return Count(); }
  bool number_unsigned(number_unsigned_t) override { return Count(); }
  bool number_float(number_float_t, const string_t&) override { return Count(); }
  bool string(string_t&) override { return Count(); }
  bool binary(binary_t&) override { return Count(); }
  bool start_object(size_t) override { return Enter(); }
  bool start_array(size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& key) override {
    if (keys_.back().insert(key).second) {
      return true;
    }
    status_ = absl::InvalidArgumentError(
        absl::StrCat(source_, ": the key ", Brief(Json(key)), " appears twice in one object"));
    return false;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    status_ = absl::InvalidArgumentError(absl::StrCat(
        source_, ": not a JSON object: malformed at byte ", position, ": ", Reason(error.what())));
    return false;
  }

 private:
  bool Count() {
    if (++num_values_ <= kMaxValues) {
      return true;
    }
    status_ = absl::InvalidArgumentError(
        absl::StrCat(source_, ": more than the ", kMaxValues, " values accepted"));
    return false;
  }
  bool Enter() {
    if (!Count()) {
      return false;
    }
    if (keys_.size() == kMaxDepth) {
      status_ = absl::InvalidArgumentError(
          absl::StrCat(source_, ": nested deeper than the ", kMaxDepth, " levels accepted"));
      return false;
    }
    keys_.emplace_back();
    return true;
  }
  bool Leave() {
    keys_.pop_back();
    return true;
  }

  absl::string_view source_;
  absl::Status status_;
  size_t num_values_ = 0;
  std::vector<absl::flat_hash_set<std::string>> keys_;  // of the open objects and arrays
};

}  // namespace

absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view source) {
  StructureCheck check(source);
  Json::sax_parse(text.begin(), text.end(), &check);
  SHOAL_RETURN_IF_ERROR(check.status());
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": not a JSON object"));
  }
  return json;
}

std::string Brief(const Json& value) {
  constexpr size_t kMaxText = 80;
  if (value.is_structured()) {
    return absl::StrCat("an ", value.is_array() ? "array" : "object");
  }
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kMaxText ? text : absl::StrCat(text.substr(0, kMaxText), "...");
}

const Json* JsonFields::Find(const char* field) const {
  const auto it = json_.find(field);
  return it == json_.end() || it->is_null() ? nullptr : &*it;
}

int64_t JsonFields::Int(const char* field, int64_t low, int64_t high,
                        std::optional<int64_t> fallback) {
  const Json* value = Find(field);
  if (value == nullptr) {
    if (!fallback) {
      Fail(field, "is missing");
    }
    return fallback.value_or(low);
  }
  constexpr uint64_t kMaxSigned = ~uint64_t{0} >> 1;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= kMaxSigned);
  const int64_t number = fits ? value->get<int64_t>() : 0;
  if (!fits || number < low || number > high) {
    Fail(field, absl::StrCat("is ", Brief(*value), "; an integer from ", low, " to ", high,
                             " is expected"));
    return low;
  }
  return number;
}

double JsonFields::Number(const char* field, double low, double high,
                          std::optional<double> fallback) {
  const Json* value = Find(field);
  if (value == nullptr) {
    if (!fallback) {
      Fail(field, "is missing");
    }
    return fallback.value_or(low);
  }
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high)) {
    Fail(field,
         absl::StrCat("is ", Brief(*value), "; a number from ", low, " to ", high, " is expected"));
    return low;
  }
  return number;
}

bool JsonFields::Bool(const char* field, bool fallback) {
  const Json* value = Find(field);
  if (value == nullptr) {
    return fallback;
  }
  if (!value->is_boolean()) {
    Fail(field, absl::StrCat("is ", Brief(*value), "; true or false is expected"));
    return fallback;
  }
  return value->get<bool>();
}

std::string JsonFields::String(const char* field, std::optional<std::string> fallback) {
  const Json* value = Find(field);
  if (value == nullptr && fallback) {
    return *std::move(fallback);
  }
  if (value == nullptr || !value->is_string()) {
    Fail(field, value == nullptr ? "is missing"
                                 : absl::StrCat("is ", Brief(*value), "; a string is expected"));
    return "";
  }
  return value->get<std::string>();
}

const Json& JsonFields::Object(const char* field) {
  static const Json empty = Json::object();
  const Json* value = Find(field);
  if (value == nullptr || !value->is_object()) {
    Fail(field, "is missing or not an object");
    return empty;
  }
  return *value;
}

const Json& JsonFields::Array(const char* field) {
  static const Json empty = Json::array();
  const Json* value = Find(field);
  if (value == nullptr || !value->is_array()) {
    Fail(field, "is missing or not an array");
    return empty;
  }
  return *value;
}

std::string JsonFields::Digest(const char* field, bool may_be_empty) {
  std::string hex = String(field, may_be_empty ? std::optional<std::string>("") : std::nullopt);
  if (status_.ok() && !(may_be_empty && hex.empty()) && !DigestFromHex(hex)) {
    Fail(field, "is not a SHA-256 digest of 64 hexadecimal digits");
  }
  return hex;
}

void JsonFields::CheckFormat(absl::string_view format, int64_t version) {
  if (String("format") != format) {
    Fail("format", absl::StrCat("is not \"", format, "\""));
  }
  const int64_t found = Int("version", 0, std::numeric_limits<int64_t>::max());
  if (found != version) {
    Refuse("version", absl::StrCat(found), absl::StrCat("this build reads version ", version));
  }
}

void JsonFields::AllowOnly(std::initializer_list<absl::string_view> known) {
  if (!json_.is_object()) {
    return;  // every getter says so
  }
  for (const auto& item : json_.items()) {
    if (std::find(known.begin(), known.end(), item.key()) == known.end()) {
      Take(absl::InvalidArgumentError(absl::StrCat(source_, ": ", Brief(Json(item.key())),
                                                   " is no field here; those are ",
                                                   absl::StrJoin(known, ", "))));
      return;
    }
  }
}

void JsonFields::Fail(const char* field, absl::string_view what) {
  Take(absl::InvalidArgumentError(absl::StrCat(source_, ": ", field, " ", what)));
}

void JsonFields::Refuse(const char* field, absl::string_view value, absl::string_view supported) {
  Take(absl::UnimplementedError(
      absl::StrCat(source_, ": ", field, " ", value, " is not supported; ", supported)));
}

void JsonFields::Take(const absl::Status& status) { status_.Update(status); }

}  // namespace shoal
