// The place where a container or a partition is made: DIR.partial, which holds the directory in the
// making and a ledger that says what it is to become.
//
//   DIR.partial/convert.ledger     (the names of a conversion)
//   DIR.partial/container/         becomes DIR in one rename
//
// The ledger lies beside the content and not in it, so that there is no moment at which DIR would
// hold a file that does not belong, or the content would be whole and the ledger gone: killed
// before the rename, a later run does the last steps again; killed after it, DIR is whole and what
// is left of DIR.partial is removed by the next run.
#ifndef SHOAL_COMMON_CONTAINER_STAGING_DIRECTORY_H_
#define SHOAL_COMMON_CONTAINER_STAGING_DIRECTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/io/unique_fd.h"

namespace shoal {

// Creates a directory, durably, where it does not exist. Its parent exists.
absl::Status MakeDirectory(const std::string& path);

// Creates a directory where it does not exist and takes an advisory lock on it, which ends with the
// descriptor or the process. FAILED_PRECONDITION where another process holds it.
absl::StatusOr<UniqueFd> MakeLockedDirectory(const std::string& path);

// Names of a directory's entries, in no order; empty where there is no directory.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// `path` as the directory's name, to which a suffix can be added; empty for "/" and "".
std::string WithoutTrailingSlashes(const std::string& path);

// What lies in DIR.partial; literals.
struct StagingNames {
  absl::string_view ledger;   // name of the file
  absl::string_view content;  // name of the directory
  absl::string_view work;     // for messages: "a conversion"
};

class StagingDirectory {
 public:
  // Creates `target`.partial where it does not exist and locks it against other processes; the lock
  // ends with the object or the process.
  //   FAILED_PRECONDITION  another process is at work in it, or it holds files of something else
  //   and what creating a directory can fail with
  static absl::StatusOr<std::unique_ptr<StagingDirectory>> Acquire(const std::string& target,
                                                                   const StagingNames& names);
  // Unlocks; removes the directory where nothing is kept in it.
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string ledger_path() const;
  std::string content_path() const;

  // Creates the content's directory and the folders in it (relative; a folder comes after the one
  // that it lies in), and removes files that an earlier run left unfinished there.
  absl::Status PrepareContent(const std::vector<std::string>& folders);
  // Renames the content to the target, durably, and removes the ledger.
  absl::Status Publish();
  // Removes what a process that was killed just after its rename left beside `target`. Nothing
  // depends on it, so it does what it can and reports nothing.
  static void RemoveLeftOver(const std::string& target, const StagingNames& names);

 private:
  StagingDirectory(std::string target, const StagingNames& names, UniqueFd lock);
  absl::Status CheckContent() const;
  absl::Status RemoveLedger();

  const std::string target_;
  const StagingNames names_;
  const std::string path_;
  std::vector<std::string> folders_;  // absolute, made by PrepareContent
  UniqueFd lock_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_STAGING_DIRECTORY_H_
