// What this build is, and what it speaks.
#ifndef SHOAL_COMMON_VERSION_H_
#define SHOAL_COMMON_VERSION_H_

#include "absl/strings/string_view.h"

namespace shoal {

// Semantic version of the release; the same as the CMake project's. The version of the container
// format has its own number, kContainerVersion (common/container/manifest.h).
inline constexpr absl::string_view kVersion = "0.1.0";

// Package of the protocol between coordinator, nodes and clients.
inline constexpr absl::string_view kProtocol = "shoal.v1";

// Raised when two builds that speak shoal.v1 can no longer work together.
inline constexpr int kProtocolVersion = 1;

// Raised with every change of a kernel that can change a bit of an expert output.
inline constexpr int kKernelRevision = 1;

}  // namespace shoal

#endif  // SHOAL_COMMON_VERSION_H_
