#include "common/container/partition_index.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/container/bank_scan.h"
#include "common/container/slice_json.h"
#include "common/io/json_fields.h"
#include "common/io/sha256.h"
#include "common/status/status_macros.h"

namespace shoal {
namespace {

constexpr char kFormatName[] = "shoal-partition";
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

std::vector<FileEntry> ReadFiles(JsonFields& fields) {
  std::vector<FileEntry> files;
  for (const Json& json : fields.Array("files")) {
    JsonFields file(json, absl::StrCat(fields.source(), ": files"));
    FileEntry entry;
    entry.path = file.String("path");
    entry.size_bytes = static_cast<uint64_t>(file.Int("size_bytes", 0, kMaxInt));
    entry.sha256 = file.Digest("sha256");
    fields.Take(file.status());
    files.push_back(std::move(entry));
  }
  return files;
}

// Where the manifest says nothing, partition.json is believed.
bool Agrees(const FileEntry& entry, const FileEntry& expected) {
  return entry.path == kManifestFile ||
         (entry.size_bytes == expected.size_bytes &&
          (expected.sha256.empty() || entry.sha256 == expected.sha256));
}

absl::Status CheckFileList(const PartitionIndex& index, const std::vector<FileEntry>& expected,
                           absl::string_view name) {
  for (size_t i = 0; i < std::max(index.files.size(), expected.size()); ++i) {
    const bool missing = i >= index.files.size();
    if (missing || i >= expected.size() || index.files[i].path != expected[i].path) {
      return absl::DataLossError(absl::StrCat(
          name, ": files names ", missing ? "nothing" : Brief(Json(index.files[i].path)), " where ",
          i < expected.size() ? expected[i].path : "nothing", " is called for by the slices"));
    }
    if (!Agrees(index.files[i], expected[i])) {
      return absl::DataLossError(absl::StrCat(name, ": files: size or sha256 of ", expected[i].path,
                                              " differs from what ", kManifestFile,
                                              " and the slices call for"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string SliceFolder(const ExpertSlice& slice) {
  return absl::StrFormat("slices/units-%04d-%04d.experts-%04d-%04d", slice.units.begin,
                         slice.units.end, slice.experts.begin, slice.experts.end);
}

std::string SliceBankFile(const ExpertSlice& slice, int64_t layer) {
  return absl::StrFormat("%s/layer-%05d.bank", SliceFolder(slice), layer);
}

std::vector<ExpertSlice> SortedSlices(std::span<const ExpertSlice> slices) {
  std::vector<ExpertSlice> sorted(slices.begin(), slices.end());
  std::sort(sorted.begin(), sorted.end(), [](const ExpertSlice& a, const ExpertSlice& b) {
    return std::tuple(a.experts.begin, a.units.begin) < std::tuple(b.experts.begin, b.units.begin);
  });
  return sorted;
}

std::string SerializePartition(const PartitionIndex& index) {
  Json json;
  json["format"] = kFormatName;
  json["version"] = kPartitionVersion;
  json["name"] = index.name;
  json["identity"] = index.identity;
  json["slices"] = SlicesToJson(index.slices);
  json["files"] = Json::array();
  for (const FileEntry& file : index.files) {
    json["files"].push_back(
        {{"path", file.path}, {"size_bytes", file.size_bytes}, {"sha256", file.sha256}});
  }
  return json.dump(1) + "\n";
}

absl::StatusOr<PartitionIndex> ParsePartition(absl::string_view text, absl::string_view name) {
  SHOAL_ASSIGN_OR_RETURN(const Json json, ParseJsonObject(text, name));
  JsonFields fields(json, std::string(name));
  fields.CheckFormat(kFormatName, kPartitionVersion);
  SHOAL_RETURN_IF_ERROR(fields.status());
  PartitionIndex index;
  index.name = fields.String("name");
  index.identity = fields.Digest("identity");
  index.slices = ReadSlices(fields, "slices");
  index.files = ReadFiles(fields);
  SHOAL_RETURN_IF_ERROR(fields.status());
  SHOAL_RETURN_IF_ERROR(CheckNodeName(index.name, absl::StrCat(name, ": name")));
  return index;
}

std::vector<FileEntry> PartitionFiles(const Manifest& manifest,
                                      std::span<const ExpertSlice> slices) {
  std::vector<FileEntry> files = {{std::string(kManifestFile), 0, ""},
                                  *manifest.FindFile(kConfigFile)};
  if (!manifest.codebooks_sha256.empty()) {
    files.push_back(*manifest.FindFile(kCodebooksFile));
  }
  for (const BankEntry& bank : manifest.banks) {
    files.push_back(*manifest.FindFile(BankTreeFile(bank.layer)));
  }
  for (const ExpertSlice& slice : slices) {
    const uint64_t bank_bytes = static_cast<uint64_t>(slice.experts.size()) *
                                RecordBytes(manifest.unit_layout, slice.units);
    for (const BankEntry& bank : manifest.banks) {
      files.push_back({SliceBankFile(slice, bank.layer), bank_bytes, ""});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const FileEntry& a, const FileEntry& b) { return a.path < b.path; });
  return files;
}

absl::Status CheckPartition(const PartitionIndex& index, const Manifest& manifest,
                            absl::string_view name) {
  if (index.identity != manifest.identity) {
    return absl::DataLossError(absl::StrCat(name, ": identity is ", index.identity.substr(0, 16),
                                            "... and ", kManifestFile, " is that of ",
                                            manifest.identity.substr(0, 16),
                                            "...: files of two containers are mixed; copy the "
                                            "partition again"));
  }
  SHOAL_RETURN_IF_ERROR(
      CheckSlices(manifest.whole_experts(), index.slices, absl::StrCat(name, ": slices")));
  if (SortedSlices(index.slices) != index.slices || index.slices.empty()) {
    return absl::DataLossError(
        absl::StrCat(name, ": slices are not one or more in the order of experts and units"));
  }
  return CheckFileList(index, PartitionFiles(manifest, index.slices), name);
}

}  // namespace shoal
