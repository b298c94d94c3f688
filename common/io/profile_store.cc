#include "common/io/profile_store.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/sync/cpu_list.h"
#include "common/sync/cpu_name.h"
#include "common/version.h"

namespace shoal {
namespace {

constexpr absl::string_view kFormat = "shoal-profile";
constexpr int64_t kProfileVersion = 1;
// Far more than a profile takes.
constexpr uint64_t kMaxBytes = uint64_t{1} << 20;
// Of a digest: enough to tell conditions apart, and Load compares them anyway.
constexpr size_t kNameDigits = 16;

// An absolute path that a variable of the environment names.
std::optional<std::string> PathVariable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || value[0] != '/') {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::string ProfileStore::UsualDirectory() {
  if (const auto of_service = PathVariable("CACHE_DIRECTORY")) {
    return std::vector<std::string>(absl::StrSplit(*of_service, ':')).front();
  }
  if (const auto caches = PathVariable("XDG_CACHE_HOME")) {
    return absl::StrCat(*caches, "/shoal");
  }
  if (const auto home = PathVariable("HOME")) {
    return absl::StrCat(*home, "/.cache/shoal");
  }
  return "";
}

std::string ProfileStore::Path(absl::string_view what, const Json& conditions) const {
  return absl::StrCat(directory_, "/", what, "-",
                      ToHex(Sha256::Of(conditions.dump())).substr(0, kNameDigits), ".json");
}

absl::StatusOr<Json> ProfileStore::Load(absl::string_view what, const Json& conditions) const {
  const std::string path = Path(what, conditions);
  SHOAL_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxBytes));
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, path));
  JsonFields fields(json, path);
  fields.CheckFormat(kFormat, kProfileVersion);
  fields.AllowOnly({"format", "version", "conditions", "measured"});
  if (fields.Object("conditions") != conditions) {
    fields.Fail("conditions", "are not those of the file's name");
  }
  const Json& measured = fields.Object("measured");
  SHOAL_RETURN_IF_ERROR(fields.status());
  return measured;
}

absl::Status ProfileStore::Save(absl::string_view what, const Json& conditions,
                                const Json& measured) const {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    return ErrnoToStatus(error.value(), absl::StrCat("create ", directory_));
  }
  const Json json = {{"format", kFormat},
                     {"version", kProfileVersion},
                     {"conditions", conditions},
                     {"measured", measured}};
  return WriteFileAtomically(Path(what, conditions), absl::StrCat(json.dump(2), "\n"));
}

std::string ChooseProfileDirectory(const std::optional<std::string>& flag) {
  if (!flag) {
    return ProfileStore::UsualDirectory();
  }
  return *flag == "none" ? "" : *flag;
}

Json MachineConditions(int num_threads) {
  return {{"program", kVersion},
          {"kernel_revision", kKernelRevision},
          {"cpu", CpuName()},
          {"cpus", FormatCpuList(AllowedCpus())},
          {"threads", num_threads}};
}

std::string MeasuredOrigin(const absl::Status& load, const absl::Status& save) {
  return absl::StrCat("measured", absl::IsNotFound(load) ? "" : absl::StrCat("; ", load.message()),
                      save.ok() ? "" : absl::StrCat("; not kept: ", save.message()));
}

}  // namespace shoal
