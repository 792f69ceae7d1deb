#include "server/grpc/health_board.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

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

TEST(HealthBoardTest, PassesOnChangesOnly) {
  CountingService service;
  HealthBoard board;
  board.Show(false, true, service);
  EXPECT_EQ(service.statuses.size(), 7u) << "every name is known from the start";
  EXPECT_EQ(service.sets, 7);
  for (int i = 0; i < 100; ++i) board.Show(false, true, service);
  EXPECT_EQ(service.sets, 7);
  board.Show(true, true, service);
  EXPECT_EQ(service.sets, 13);
  EXPECT_TRUE(service.statuses.at("readiness"));
  EXPECT_TRUE(service.statuses.at("annulus.v1.InferenceService"));
  board.Show(true, false, service);
  board.Show(true, false, service);
  EXPECT_EQ(service.sets, 14);
  EXPECT_FALSE(service.statuses.at("liveness"));
  EXPECT_TRUE(service.statuses.at(""));
  board.Show(false, false, service);
  EXPECT_FALSE(service.statuses.at(""));
}

}  // namespace
}  // namespace annulus::server
