// What a conversion has finished so far, kept beside the container in the making, so that a later
// run goes on from it.
//
// The file is JSON lines. The first says what is being made; each later one describes finished
// files (sizes, digests) and what the manifest needs of them. A line counts once it ends with a
// newline and parses: a kill or a power cut in the middle of an append leaves a last line that does
// not, which is cut off at the next open.
#ifndef SHOAL_COORDINATOR_CONVERT_LEDGER_H_
#define SHOAL_COORDINATOR_CONVERT_LEDGER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/container/manifest.h"
#include "common/io/sha256.h"
#include "common/io/unique_fd.h"
#include "kernels/rvq.h"

namespace shoal {

struct LedgerHeader {
  std::string created_by;  // another version may encode differently
  ConvertSettings settings;
  std::string source_fingerprint;
};

struct LedgerTrunk {
  FileEntry file;
  std::vector<uint32_t> crcs;  // of the trunk tensors, in order
  double relative_error = 0;
  std::vector<Sha256Digest> source_digests;  // of the source tensors, in order of first use
};

struct LedgerLayer {
  int64_t layer = 0;
  FileEntry bank;
  FileEntry tree;
  std::string tree_root;
  double relative_error = 0;
  std::optional<LayerCodebooks> codebooks;   // absent where the codec has none
  std::vector<Sha256Digest> source_digests;  // of each expert's gate, up, down, by expert
};

// One thread at a time.
class Ledger {
 public:
  // Reads the ledger at `path`; a missing file is an empty ledger. DATA_LOSS where a line other
  // than the last is malformed.
  static absl::StatusOr<std::unique_ptr<Ledger>> Open(const std::string& path);

  // Absent until Start.
  const std::optional<LedgerHeader>& header() const { return header_; }
  const std::optional<LedgerTrunk>& trunk() const { return trunk_; }
  const std::map<int64_t, LedgerLayer>& layers() const { return layers_; }

  // Writes the first line. The ledger is empty.
  absl::Status Start(const LedgerHeader& header);
  // Append a line durably; a later line about the same files replaces the earlier.
  absl::Status Record(const LedgerTrunk& trunk);
  absl::Status Record(const LedgerLayer& layer);

 private:
  explicit Ledger(std::string path) : path_(std::move(path)) {}
  absl::Status Parse(const std::string& text);
  bool ParseLine(const std::string& line);
  absl::Status Append(std::string line);

  const std::string path_;
  UniqueFd fd_;  // for appending
  std::optional<LedgerHeader> header_;
  std::optional<LedgerTrunk> trunk_;
  std::map<int64_t, LedgerLayer> layers_;
};

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_LEDGER_H_
