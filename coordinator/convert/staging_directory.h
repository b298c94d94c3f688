// The place where a container is made: DIR.partial, which holds the ledger and the container in the
// making.
//
//   DIR.partial/convert.ledger     what is finished (ledger.h)
//   DIR.partial/container/         becomes DIR in one rename
//
// The ledger lies beside the container and not in it, so that there is no moment at which DIR would
// hold a file that does not belong, or the container would be whole and the ledger gone: killed
// before the rename, a later run does the last steps again; killed after it, DIR is whole and what
// is left of DIR.partial is removed by the next run.
#ifndef SHOAL_COORDINATOR_CONVERT_STAGING_DIRECTORY_H_
#define SHOAL_COORDINATOR_CONVERT_STAGING_DIRECTORY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/io/unique_fd.h"

namespace shoal {

// Creates a directory where it does not exist and takes an advisory lock on it, which ends with the
// descriptor or the process. FAILED_PRECONDITION where another process holds it.
absl::StatusOr<UniqueFd> MakeLockedDirectory(const std::string& path);

// Names of a directory's entries, in no order; empty where there is no directory.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

// `path` as the directory's name, to which a suffix can be added; empty for "/" and "".
std::string WithoutTrailingSlashes(const std::string& path);

class StagingDirectory {
 public:
  // Creates `target`.partial where it does not exist and locks it against other processes; the lock
  // ends with the object or the process.
  //   FAILED_PRECONDITION  another conversion is at work in it, or it holds files of something else
  //   and what creating a directory can fail with
  static absl::StatusOr<std::unique_ptr<StagingDirectory>> Acquire(const std::string& target);
  // Unlocks; removes the directory where nothing is kept in it.
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string ledger_path() const;
  std::string container_path() const;

  // Creates the container's folders (`has_experts`: also that of the banks) and removes files that
  // an earlier run left unfinished.
  absl::Status PrepareContainer(bool has_experts);
  // Renames the container to the target, durably, and removes the ledger.
  absl::Status Publish();
  // Removes what a conversion that was killed just after its rename left beside `target`. Nothing
  // depends on it, so it does what it can and reports nothing.
  static void RemoveLeftOver(const std::string& target);

 private:
  StagingDirectory(std::string target, UniqueFd lock);
  absl::Status CheckContent() const;
  absl::Status RemoveLedger();

  const std::string target_;
  const std::string path_;
  UniqueFd lock_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_STAGING_DIRECTORY_H_
