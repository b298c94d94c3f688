// Models for the coordinator's tests: the bundled one that the fixture converts, and small ones
// that a test makes itself.
#ifndef SHOAL_TESTS_COORDINATOR_TEST_MODELS_H_
#define SHOAL_TESTS_COORDINATOR_TEST_MODELS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "coordinator/convert/converter.h"
#include "coordinator/model.h"
#include "tests/coordinator/convert/small_checkpoint.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal::testing {

inline std::string RvqModel() { return std::string(SHOAL_TEST_MODELS) + "/tiny-rvq3"; }
inline std::string F32Model() { return std::string(SHOAL_TEST_MODELS) + "/tiny-f32"; }

// With a budget that does not depend on the machine.
inline std::unique_ptr<Model> OpenModel(const std::string& directory, ModelOptions options = {}) {
  if (!options.budget_bytes) {
    options.budget_bytes = uint64_t{1} << 30;
  }
  auto model = Model::Open(directory, options);
  EXPECT_THAT(model, IsOk());
  return model.ok() ? *std::move(model) : nullptr;
}

inline std::unique_ptr<Session> NewSession(Model& model) {
  auto session = model.NewSession();
  EXPECT_THAT(session, IsOk());
  return session.ok() ? *std::move(session) : nullptr;
}

// Converts a small checkpoint below `dir` and returns the container. Lossless experts: training
// codebooks would take most of a test's time under a sanitizer.
inline std::string ConvertSmall(const SmallCheckpoint& checkpoint, const TempDir& dir,
                                TrunkType trunk = TrunkType::kF32) {
  checkpoint.WriteTo(dir / "checkpoint");
  ConvertOptions options;
  options.experts = ExpertCodec::kF32;
  options.trunk = trunk;
  options.num_jobs = 1;
  EXPECT_THAT(Convert(dir / "checkpoint", dir / "container", options, nullptr, {}), IsOk());
  return dir / "container";
}

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_COORDINATOR_TEST_MODELS_H_
