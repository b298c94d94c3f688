// What is the same for every container that is written: its size on disk, its manifest and digests.
#ifndef SHOAL_COORDINATOR_CONVERT_CONTAINER_FILES_H_
#define SHOAL_COORDINATOR_CONVERT_CONTAINER_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/manifest.h"
#include "common/container/unit_layout.h"
#include "common/model/model_config.h"
#include "coordinator/convert/source_model.h"

namespace shoal {

// What containers and ledgers say they were made by: "shoal 0.1.0".
std::string CreatedBy();

// "812 bytes (0.8 MiB)", for messages about disk space.
std::string InBytes(uint64_t bytes);

// Size of all files below `directory`.
absl::StatusOr<uint64_t> DirectoryBytes(const std::string& directory);

// Sizes of all files of a container but source_tensors.txt, at most. `layout` is looked at where
// the model has MoE layers.
uint64_t ContainerBytes(const ModelConfig& config, const UnitLayout& layout,
                        const std::vector<TrunkEntry>& trunk,
                        const std::vector<CopiedFile>& copies);

// Writes a file of the container in the making in one piece.
using WriteSmallFile = absl::FunctionRef<absl::StatusOr<FileEntry>(const std::string& name,
                                                                   absl::string_view content)>;

// The last two files, manifest.json and SHA256SUMS, by `write`. `manifest` is complete but for
// created_by and identity, which are filled in, and the order of its files. `write`'s errors.
absl::Status WriteManifestFiles(absl::string_view config_json, Manifest& manifest,
                                WriteSmallFile write);

}  // namespace shoal

#endif  // SHOAL_COORDINATOR_CONVERT_CONTAINER_FILES_H_
