// Where the content of a partition in the making comes from: a container on disk, or other machines.
#ifndef SHOAL_COMMON_CONTAINER_PARTITION_SOURCE_H_
#define SHOAL_COMMON_CONTAINER_PARTITION_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/container/container.h"
#include "common/container/expert_slice.h"
#include "common/container/manifest.h"
#include "common/container/unit_layout.h"

namespace shoal {

// One thread at a time. What it hands over has been checked against the manifest; what fails the
// check, and every other error, names where it came from.
class PartitionSource {
 public:
  // Gets layout.unit_bytes; an error of it ends the call that it was given to.
  using OnUnit = absl::FunctionRef<absl::Status(ExpertKey key, int64_t unit,
                                                std::span<const std::byte> bytes)>;

  virtual ~PartitionSource() = default;

  // Of the whole container; the same as long as the source lives.
  virtual const Manifest& manifest() const = 0;
  // The text that it was parsed from, and config.json beside it.
  virtual absl::StatusOr<std::string> ReadManifestText() = 0;
  virtual const std::string& config_json() const = 0;
  // codebooks.bin; empty where the codec has none.
  virtual absl::StatusOr<std::string> ReadCodebooks() = 0;
  // The digests of all units of one of the manifest's banks, 32 bytes each.
  virtual absl::StatusOr<std::string> ReadLeaves(const BankEntry& bank) = 0;
  // The units of a slice (inside the model) in an MoE layer, by expert, then by unit. Each has been
  // checked against `leaves`, which ReadLeaves gave for that layer.
  virtual absl::Status ReadUnits(int64_t layer, const ExpertSlice& slice, absl::string_view leaves,
                                 OnUnit on_unit) = 0;
};

// A container on this machine.
class ContainerSource final : public PartitionSource {
 public:
  // `container` outlives the source.
  explicit ContainerSource(const Container& container) : container_(container) {}

  const Manifest& manifest() const override { return container_.manifest(); }
  absl::StatusOr<std::string> ReadManifestText() override;
  const std::string& config_json() const override { return container_.config_json(); }
  absl::StatusOr<std::string> ReadCodebooks() override;
  absl::StatusOr<std::string> ReadLeaves(const BankEntry& bank) override;
  absl::Status ReadUnits(int64_t layer, const ExpertSlice& slice, absl::string_view leaves,
                         OnUnit on_unit) override;

 private:
  const Container& container_;
};

}  // namespace shoal

#endif  // SHOAL_COMMON_CONTAINER_PARTITION_SOURCE_H_
