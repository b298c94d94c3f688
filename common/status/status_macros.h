// Early return on error, for functions that return absl::Status or absl::StatusOr.
#ifndef SHOAL_COMMON_STATUS_STATUS_MACROS_H_
#define SHOAL_COMMON_STATUS_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Evaluates `expr` (an absl::Status) and returns it from the enclosing function unless it is OK.
#define SHOAL_RETURN_IF_ERROR(expr)                               \
  do {                                                            \
    if (absl::Status shoal_status = (expr); !shoal_status.ok()) { \
      return shoal_status;                                        \
    }                                                             \
  } while (false)

// Evaluates `expr` (an absl::StatusOr<T>), returns its status on error, else moves the value into
// `lhs`, which may be a declaration: SHOAL_ASSIGN_OR_RETURN(auto file, File::Open(path)).
#define SHOAL_ASSIGN_OR_RETURN(lhs, expr) \
  SHOAL_ASSIGN_OR_RETURN_IMPL_(SHOAL_CONCAT_(shoal_statusor_, __LINE__), lhs, expr)

#define SHOAL_CONCAT_INNER_(a, b) a##b
#define SHOAL_CONCAT_(a, b) SHOAL_CONCAT_INNER_(a, b)
#define SHOAL_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) {                                   \
    return std::move(tmp).status();                  \
  }                                                  \
  lhs = std::move(tmp).value()

#endif  // SHOAL_COMMON_STATUS_STATUS_MACROS_H_
