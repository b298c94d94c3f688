#include "coordinator/service/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace shoal {
namespace {

void WaitForLine(Turns& turns, int length) {
  while (turns.num_waiting() != length) {
    std::this_thread::yield();
  }
}

TEST(TurnsTest, AloneNothingIsWaitedFor) {
  Turns turns;
  const std::stop_token never;
  ASSERT_TRUE(turns.Take(never));
  EXPECT_TRUE(turns.Pass(never));
  EXPECT_TRUE(turns.Pass(never));
  turns.Leave();
  EXPECT_TRUE(turns.Take(never));
}

TEST(TurnsTest, ThoseThatWaitTakeTurnsInTheOrderInWhichTheyCame) {
  Turns turns;
  const std::stop_token never;
  std::string order;  // written by who has the turn
  ASSERT_TRUE(turns.Take(never));
  std::vector<std::jthread> threads;
  for (const char name : {'a', 'b', 'c'}) {
    threads.emplace_back([&turns, &order, &never, name] {
      ASSERT_TRUE(turns.Take(never));
      for (int i = 0; i < 4; ++i) {
        order += name;
        ASSERT_TRUE(turns.Pass(never));
      }
      turns.Leave();
    });
    WaitForLine(turns, static_cast<int>(threads.size()));
  }
  turns.Leave();
  threads.clear();
  EXPECT_EQ(order, "abcabcabcabc");
}

TEST(TurnsTest, OnlyOneHasTheTurn) {
  Turns turns;
  std::atomic<int> inside{0};
  std::atomic<bool> met{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const std::stop_token never;
      ASSERT_TRUE(turns.Take(never));
      for (int step = 0; step < 200; ++step) {
        if (inside.fetch_add(1) != 0) {
          met = true;
        }
        std::this_thread::yield();
        inside.fetch_sub(1);
        ASSERT_TRUE(turns.Pass(never));
      }
      turns.Leave();
    });
  }
  threads.clear();
  EXPECT_FALSE(met);
}

TEST(TurnsTest, AStopTakesAWaiterOutOfTheLine) {
  Turns turns;
  const std::stop_token never;
  ASSERT_TRUE(turns.Take(never));
  std::stop_source stop;
  std::atomic<bool> stopped_had_turn{true};
  std::atomic<bool> other_had_turn{false};
  std::jthread stopped([&] { stopped_had_turn = turns.Take(stop.get_token()); });
  WaitForLine(turns, 1);
  std::jthread other([&] {
    other_had_turn = turns.Take(never);
    turns.Leave();
  });
  WaitForLine(turns, 2);
  stop.request_stop();
  stopped.join();
  EXPECT_FALSE(stopped_had_turn);
  turns.Leave();
  other.join();
  EXPECT_TRUE(other_had_turn);
}

TEST(TurnsTest, AStopThatCameBeforeDoesNotWait) {
  Turns turns;
  ASSERT_TRUE(turns.Take({}));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(turns.Take(stop.get_token()));
  EXPECT_EQ(turns.num_waiting(), 0);
  turns.Leave();
}

}  // namespace
}  // namespace shoal
