#include "coordinator/cli/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <condition_variable>
#include <optional>
#include <string>
#include <thread>

#include "coordinator/cli/line_reader.h"
#include "tests/testing/status_matchers.h"

namespace shoal {
namespace {

using ::testing::HasSubstr;

// Returns when `token` is requested; a test that hangs here has failed.
void WaitForStop(const std::stop_token& token) {
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, token, [] { return false; });
}

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(fds), 0); }
  ~Pipe() {
    ::close(fds[0]);
    CloseWriter();
  }
  void Write(const std::string& text) {
    EXPECT_EQ(::write(fds[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseWriter() {
    if (fds[1] >= 0) {
      ::close(fds[1]);
      fds[1] = -1;
    }
  }
  int fds[2] = {-1, -1};
};

TEST(InterruptTest, SignalRequestsAStopAndRearmForgetsIt) {
  SHOAL_ASSERT_OK_AND_ASSIGN(const auto interrupt, Interrupt::Install());
  EXPECT_FALSE(interrupt->requested());
  ASSERT_EQ(::raise(SIGINT), 0);
  WaitForStop(interrupt->token());
  EXPECT_TRUE(interrupt->requested());
  interrupt->Rearm();
  EXPECT_FALSE(interrupt->requested());
  ASSERT_EQ(::raise(SIGINT), 0);
  WaitForStop(interrupt->token());
}

TEST(InterruptDeathTest, SecondSignalEndsTheProcessWith130) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto interrupt = Interrupt::Install();
        ::raise(SIGINT);
        ::raise(SIGINT);
      },
      ::testing::ExitedWithCode(130), "");
}

TEST(InterruptTest, IgnoredSignalStaysIgnored) {
  struct sigaction previous = {};
  struct sigaction ignore = {};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGINT, &ignore, &previous), 0);
  {
    SHOAL_ASSERT_OK_AND_ASSIGN(const auto interrupt, Interrupt::Install());
    struct sigaction now = {};
    ASSERT_EQ(::sigaction(SIGINT, nullptr, &now), 0);
    EXPECT_EQ(now.sa_handler, SIG_IGN);
  }
  ::sigaction(SIGINT, &previous, nullptr);
}

TEST(InterruptTest, HandlerIsRemovedWithTheObject) {
  { SHOAL_ASSERT_OK_AND_ASSIGN(const auto interrupt, Interrupt::Install()); }
  struct sigaction now = {};
  ASSERT_EQ(::sigaction(SIGINT, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

TEST(LineReaderTest, GivesLinesThenTheUnfinishedRestThenTheEnd) {
  Pipe pipe;
  LineReader reader(pipe.fds[0]);
  pipe.Write("one\n\nthree");
  pipe.CloseWriter();
  EXPECT_EQ(reader.Next({}).value(), "one");
  EXPECT_EQ(reader.Next({}).value(), "");
  EXPECT_EQ(reader.Next({}).value(), "three");
  EXPECT_EQ(reader.Next({}).value(), std::nullopt);
}

TEST(LineReaderTest, StopWakesAWaitingReader) {
  Pipe pipe;
  LineReader reader(pipe.fds[0]);
  std::stop_source source;
  std::thread stopper([&source] { source.request_stop(); });
  EXPECT_THAT(reader.Next(source.get_token()).status(),
              shoal::testing::StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
  stopper.join();
}

TEST(LineReaderTest, RefusesALineOfMoreThanAMebibyte) {
  Pipe pipe;
  std::thread writer([&pipe] {
    const std::string chunk(1 << 14, 'x');
    for (int i = 0; i < 66; ++i) {
      pipe.Write(chunk);
    }
    pipe.CloseWriter();
  });
  LineReader reader(pipe.fds[0]);
  EXPECT_THAT(reader.Next({}).status(),
              shoal::testing::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("1 MiB")));
  while (reader.Next({}).status().code() == absl::StatusCode::kResourceExhausted) {
    // Drains nothing more: the error stays, so let the writer finish by reading the pipe itself.
    char chunk[4096];
    if (::read(pipe.fds[0], chunk, sizeof(chunk)) <= 0) {
      break;
    }
  }
  writer.join();
}

}  // namespace
}  // namespace shoal
