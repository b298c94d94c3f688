#include "common/io/profile_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/io/file.h"
#include "common/io/json_fields.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace shoal {
namespace {

using ::shoal::testing::StatusIs;
using ::shoal::testing::TempDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kVariables[] = {"CACHE_DIRECTORY", "XDG_CACHE_HOME", "HOME"};

// The environment has only these of the variables that say where caches are.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const char* name : kVariables) {
      const char* value = ::getenv(name);
      before_.emplace_back(name,
                           value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
    for (const auto& [name, value] : variables) {
      ::setenv(name, value, 1);
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST(ProfileStoreTest, TheUsualDirectoryIsTheServicesThenTheUsers) {
  {
    const Environment environment({{"CACHE_DIRECTORY", "/var/cache/shoal:/var/cache/other"},
                                   {"XDG_CACHE_HOME", "/caches"},
                                   {"HOME", "/people/me"}});
    EXPECT_EQ(ProfileStore::UsualDirectory(), "/var/cache/shoal");
    EXPECT_EQ(ChooseProfileDirectory(std::nullopt), "/var/cache/shoal");
    EXPECT_EQ(ChooseProfileDirectory("mine"), "mine");
    EXPECT_EQ(ChooseProfileDirectory("none"), "");
  }
  {
    const Environment environment({{"XDG_CACHE_HOME", "/caches"}, {"HOME", "/people/me"}});
    EXPECT_EQ(ProfileStore::UsualDirectory(), "/caches/shoal");
  }
  {
    // The XDG specification: what is not absolute is ignored.
    const Environment environment({{"XDG_CACHE_HOME", "caches"}, {"HOME", "/people/me"}});
    EXPECT_EQ(ProfileStore::UsualDirectory(), "/people/me/.cache/shoal");
  }
  const Environment environment({});
  EXPECT_EQ(ChooseProfileDirectory(std::nullopt), "");
}

class SavedProfileTest : public ::testing::Test {
 protected:
  void SetUp() override { SHOAL_ASSERT_OK(store_.Save("speed", conditions_, measured_)); }
  void Write(const std::string& text) {
    SHOAL_ASSERT_OK(WriteFileAtomically(store_.Path("speed", conditions_), text));
  }

  TempDir dir_;
  const ProfileStore store_{dir_ / "made/when/saved"};
  const Json conditions_ = {{"cpu", "a"}, {"threads", 2}};
  const Json measured_ = {{"rate", 7}};
};

TEST_F(SavedProfileTest, IsThereForTheSameConditionsAlone) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const Json loaded, store_.Load("speed", conditions_));
  EXPECT_EQ(loaded, measured_);
  EXPECT_THAT(store_.Load("speed", {{"cpu", "a"}, {"threads", 3}}),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
  EXPECT_THAT(store_.Load("size", conditions_),
              StatusIs(absl::StatusCode::kNotFound, ::testing::_));
}

TEST_F(SavedProfileTest, IsReplacedByALaterOne) {
  SHOAL_ASSERT_OK(store_.Save("speed", conditions_, {{"rate", 8}}));
  SHOAL_ASSERT_OK_AND_ASSIGN(const Json loaded, store_.Load("speed", conditions_));
  EXPECT_EQ(loaded["rate"], 8);
}

TEST_F(SavedProfileTest, OfAnotherVersionIsRefusedByNumber) {
  Write(R"({"format": "shoal-profile", "version": 2, "conditions": {}, "measured": {}})");
  EXPECT_THAT(store_.Load("speed", conditions_),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr(store_.Path("speed", conditions_)), HasSubstr("2"))));
}

TEST_F(SavedProfileTest, OfOtherConditionsUnderItsNameIsRefused) {
  Write(R"({"format": "shoal-profile", "version": 1, "conditions": {"cpu": "b"}, "measured": {}})");
  EXPECT_THAT(store_.Load("speed", conditions_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("conditions")));
}

TEST_F(SavedProfileTest, DamagedIsRefused) {
  Write("{");
  EXPECT_THAT(store_.Load("speed", conditions_),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::_));
  Write(std::string(2 << 20, ' '));
  EXPECT_THAT(store_.Load("speed", conditions_),
              StatusIs(absl::StatusCode::kResourceExhausted, ::testing::_));
}

TEST(ProfileStoreTest, APlaceThatCannotBeWrittenIsAnError) {
  const ProfileStore store("/proc/shoal");
  EXPECT_FALSE(store.Save("speed", Json::object(), Json::object()).ok());
}

TEST(ProfileStoreTest, SaysWhyItWasMeasuredAndNotKept) {
  EXPECT_EQ(MeasuredOrigin(absl::NotFoundError("no file"), absl::OkStatus()), "measured");
  EXPECT_EQ(MeasuredOrigin(absl::InvalidArgumentError("broken"), absl::InternalError("full")),
            "measured; broken; not kept: full");
}

TEST(MachineConditionsTest, DifferByTheNumberOfThreads) {
  EXPECT_NE(MachineConditions(1), MachineConditions(2));
  EXPECT_EQ(MachineConditions(2), MachineConditions(2));
}

}  // namespace
}  // namespace shoal
