// A directory that is removed when the test ends.
#ifndef SHOAL_TESTS_TESTING_TEMP_DIR_H_
#define SHOAL_TESTS_TESTING_TEMP_DIR_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace shoal::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern = ::testing::TempDir() + "shoal-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace shoal::testing

#endif  // SHOAL_TESTS_TESTING_TEMP_DIR_H_
