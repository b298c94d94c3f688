// Reads the fields of a JSON object that came from outside: types and ranges are checked, the first
// error names source and field.
#ifndef SHOAL_COMMON_IO_JSON_FIELDS_H_
#define SHOAL_COMMON_IO_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

using Json = nlohmann::json;

// Parses a JSON object. Refuses beside malformed text a key that appears twice in one object (the
// JSON library keeps the last one silently, other programs the first), nesting of more than 64
// levels (copying a value recurses, so depth costs stack), and more than 2^21 values (a value takes
// many times the memory of its text). INVALID_ARGUMENT names `source` and the key, the limit, or
// where (in bytes) and why the text is malformed.
absl::StatusOr<Json> ParseJsonObject(absl::string_view text, absl::string_view source);

// A value for a message: itself where it is short and flat, else its kind. (Printing nested values
// recurses, and their depth is the sender's choice.)
std::string Brief(const Json& value);

// After an error the getters return some value in range; callers check status() once at the end. A
// field that is null counts as absent. `json` outlives the reader.
class JsonFields {
 public:
  JsonFields(const Json& json, std::string source) : json_(json), source_(std::move(source)) {}

  // An integer in [low, high]; without a fallback the field is required.
  int64_t Int(const char* field, int64_t low, int64_t high, std::optional<int64_t> fallback = {});
  // A finite number in [low, high].
  double Number(const char* field, double low, double high, std::optional<double> fallback = {});
  bool Bool(const char* field, bool fallback);
  std::string String(const char* field, std::optional<std::string> fallback = {});

  // Null where absent.
  const Json* Find(const char* field) const;
  // An object or array that is required; an empty one after an error.
  const Json& Object(const char* field);
  const Json& Array(const char* field);

  // Records INVALID_ARGUMENT where the object has another field than these: a misspelt one would
  // count as absent.
  void AllowOnly(std::initializer_list<absl::string_view> known);

  // Records INVALID_ARGUMENT "source: field what", or UNIMPLEMENTED "source: field value is not
  // supported; supported".
  void Fail(const char* field, absl::string_view what);
  void Refuse(const char* field, absl::string_view value, absl::string_view supported);
  // Records an error of a nested reader.
  void Take(const absl::Status& status);

  // A SHA-256 digest of 64 hexadecimal digits, or nothing where that is allowed.
  std::string Digest(const char* field, bool may_be_empty = false);
  // What every file of ours begins with: the field "format" is `format`, "version" is `version`.
  // Another version is refused by its number.
  void CheckFormat(absl::string_view format, int64_t version);

  const absl::Status& status() const { return status_; }
  const std::string& source() const { return source_; }

 private:
  const Json& json_;
  std::string source_;
  absl::Status status_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_JSON_FIELDS_H_
