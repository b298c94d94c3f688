#include "coordinator/convert/container_files.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/container/directory_files.h"
#include "common/io/byte_size.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"
#include "common/status/status_util.h"
#include "common/version.h"
#include "coordinator/convert/trunk_file_writer.h"
#include "kernels/rvq.h"

namespace shoal {

namespace fs = std::filesystem;

std::string CreatedBy() { return absl::StrCat("shoal ", kVersion); }

std::string InBytes(uint64_t bytes) {
  return absl::StrCat(bytes, " bytes (", FormatByteSize(bytes), ")");
}

absl::StatusOr<uint64_t> DirectoryBytes(const std::string& directory) {
  uint64_t total = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(directory, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_regular_file(error) && !error) {
      total += it->file_size(error);
    }
  }
  return error ? absl::StatusOr<uint64_t>(
                     ErrnoToStatus(error.value(), absl::StrCat("list ", directory)))
               : total;
}

uint64_t ContainerBytes(const ModelConfig& config, const UnitLayout& layout,
                        const std::vector<TrunkEntry>& trunk,
                        const std::vector<CopiedFile>& copies) {
  // manifest.json, SHA256SUMS and a ledger: more than their lines take.
  constexpr uint64_t kBytesPerEntry = 1024;
  constexpr uint64_t kBytesPerLayer = 16384;
  constexpr uint64_t kBytesPerExpert = 256;
  const auto num_experts = static_cast<uint64_t>(config.moe.num_experts);
  const auto num_layers = static_cast<uint64_t>(config.num_moe_layers());
  uint64_t bytes = TrunkFileBytes(trunk) + kBytesPerEntry * trunk.size();
  if (num_layers > 0) {
    bytes += num_layers * num_experts *
             (layout.record_bytes + static_cast<uint64_t>(layout.num_units) * sizeof(Sha256Digest));
    bytes += HasCodebooks(layout.codec) ? num_layers * sizeof(LayerCodebooks) : 0;
    bytes += num_layers * (kBytesPerLayer + kBytesPerExpert * num_experts);
  }
  for (const CopiedFile& copy : copies) {
    bytes += copy.content.size();
  }
  return bytes;
}

absl::Status WriteManifestFiles(absl::string_view config_json, Manifest& manifest,
                                WriteSmallFile write) {
  manifest.created_by = CreatedBy();
  manifest.identity = ComputeIdentity(config_json, manifest);
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const FileEntry& a, const FileEntry& b) { return a.path < b.path; });
  SHOAL_ASSIGN_OR_RETURN(const FileEntry file,
                         write(std::string(kManifestFile), SerializeManifest(manifest)));
  std::map<std::string, std::string> sums = {{file.path, file.sha256}};
  for (const FileEntry& entry : manifest.files) {
    sums[entry.path] = entry.sha256;
  }
  return write(std::string(kDigestsFile), FormatDigests(sums)).status();
}

}  // namespace shoal
