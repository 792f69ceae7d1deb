#include "server/grpc/health_board.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace annulus::server {
namespace {

// gRPC's own sends a message to every watcher for each of these.
class CountingService final : public grpc::HealthCheckServiceInterface {
 public:
  void SetServingStatus(const std::string& name, bool serving) override {
    statuses[name] = serving;
    ++sets;
  }
  void SetServingStatus(bool) override { ADD_FAILURE() << "all names at once"; }

  std::map<std::string, bool> statuses;
  int sets = 0;
};

void Show(bool ready, bool alive, CountingService& service, HealthBoard& board) {
  board.Show([&] { return HealthBoard::Health{.ready = ready, .alive = alive}; }, service);
}

TEST(HealthBoardTest, PassesOnChangesOnly) {
  CountingService service;
  HealthBoard board;
  Show(false, true, service, board);
  EXPECT_EQ(service.statuses.size(), 7u) << "every name is known from the start";
  EXPECT_EQ(service.sets, 7);
  for (int i = 0; i < 100; ++i) Show(false, true, service, board);
  EXPECT_EQ(service.sets, 7);
  Show(true, true, service, board);
  EXPECT_EQ(service.sets, 13);
  EXPECT_TRUE(service.statuses.at("readiness"));
  EXPECT_TRUE(service.statuses.at("annulus.v1.InferenceService"));
  Show(true, false, service, board);
  Show(true, false, service, board);
  EXPECT_EQ(service.sets, 14);
  EXPECT_FALSE(service.statuses.at("liveness"));
  EXPECT_TRUE(service.statuses.at(""));
  Show(false, false, service, board);
  EXPECT_FALSE(service.statuses.at(""));
}

// One thread reads that the daemon is not ready. Before it sets that, another reads that it is.
TEST(HealthBoardTest, WhatWasReadEarlierReplacesNothing) {
  CountingService service;
  HealthBoard board;
  std::mutex mutex;
  std::condition_variable changed;
  bool has_read = false;
  bool is_set = false;
  std::thread later([&] {
    {
      std::unique_lock lock(mutex);
      EXPECT_TRUE(changed.wait_for(lock, std::chrono::minutes(1), [&] { return has_read; }));
    }
    Show(true, true, service, board);
    std::lock_guard lock(mutex);
    is_set = true;
    changed.notify_all();
  });
  const auto read_early = [&] {
    std::unique_lock lock(mutex);
    has_read = true;
    changed.notify_all();
    // Where the other need not wait, it comes in between.
    EXPECT_FALSE(changed.wait_for(lock, std::chrono::milliseconds(200), [&] { return is_set; }));
    return HealthBoard::Health{.ready = false, .alive = true};
  };
  board.Show(read_early, service);
  later.join();
  EXPECT_TRUE(service.statuses.at("readiness"));
}

}  // namespace
}  // namespace annulus::server
