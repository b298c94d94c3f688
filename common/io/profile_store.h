// What programs measure of their machine at a start, kept for later starts: one small JSON file for each
// thing measured under each set of conditions. A cache: whoever deletes it loses a moment of measuring.
#ifndef SHOAL_COMMON_IO_PROFILE_STORE_H_
#define SHOAL_COMMON_IO_PROFILE_STORE_H_

#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace shoal {

// Thread-safe, and safe beside other processes: files are replaced whole.
class ProfileStore {
 public:
  // Files lie in `directory`, which Save makes where it is missing.
  explicit ProfileStore(std::string directory) : directory_(std::move(directory)) {}

  // Where a program of this user keeps what can be made again: $CACHE_DIRECTORY (systemd's, its first), else
  // $XDG_CACHE_HOME/shoal, else $HOME/.cache/shoal; empty where the environment names no absolute one of these.
  static std::string UsualDirectory();

  // The file of `what` (a word) under these conditions (an object): a change of any of them is another file.
  std::string Path(absl::string_view what, const nlohmann::json& conditions) const;

  // The object that was saved.
  //   NOT_FOUND         nothing was
  //   INVALID_ARGUMENT  the file is not one of ours, or of another version or other conditions; it names file and field
  //   and ReadTextFile's errors
  absl::StatusOr<nlohmann::json> Load(absl::string_view what,
                                      const nlohmann::json& conditions) const;
  // WriteFileAtomically's errors, and those of making the directory.
  absl::Status Save(absl::string_view what, const nlohmann::json& conditions,
                    const nlohmann::json& measured) const;

 private:
  const std::string directory_;
};

// The directory that a flag --profile names: UsualDirectory where the flag is absent; empty, for no measuring, where it
// is "none" or there is no usual one.
std::string ChooseProfileDirectory(const std::optional<std::string>& flag);
// For --help of the flag.
inline constexpr absl::string_view kProfileHelp =
    "Where to keep what is measured at the first start: how work\nis best shared out among "
    "threads; none: do not "
    "measure\n(default: ~/.cache/shoal)";

// What every measurement of threads depends on: an object of this program's version, the CPU's name, the CPUs that the
// process may use, and `num_threads`.
nlohmann::json MachineConditions(int num_threads);

// Where something that had to be measured comes from, for people: "measured", and what Load and Save met, if it was
// more than that there was nothing.
std::string MeasuredOrigin(const absl::Status& load, const absl::Status& save);

}  // namespace shoal

#endif  // SHOAL_COMMON_IO_PROFILE_STORE_H_
