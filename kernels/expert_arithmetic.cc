#include "kernels/expert_arithmetic.h"

namespace shoal {

std::string_view ExpertArithmeticName(ExpertArithmetic arithmetic) {
  return arithmetic == ExpertArithmetic::kExact ? "exact" : "fast";
}

std::optional<ExpertArithmetic> ParseExpertArithmetic(std::string_view name) {
  for (const ExpertArithmetic one : {ExpertArithmetic::kExact, ExpertArithmetic::kFast}) {
    if (ExpertArithmeticName(one) == name) {
      return one;
    }
  }
  return std::nullopt;
}

}  // namespace shoal
