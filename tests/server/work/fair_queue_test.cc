#include "server/work/fair_queue.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace annulus::server {
namespace {

FairQueue Queue(size_t waiting = 100, int running_of_client = 100) {
  return FairQueue({.waiting = waiting, .running_of_client = running_of_client});
}

TEST(FairQueueTest, OneClientsJobsKeepTheirOrder) {
  FairQueue queue = Queue();
  for (JobId id = 1; id <= 5; ++id) ASSERT_TRUE(queue.Add(id, "a"));
  for (JobId id = 1; id <= 5; ++id) EXPECT_EQ(queue.Next(), id);
  EXPECT_EQ(queue.Next(), std::nullopt);
  EXPECT_EQ(queue.waiting(), 0u);
}

TEST(FairQueueTest, ANewClientComesBeforeTheQueueOfAnother) {
  FairQueue queue = Queue();
  for (JobId id = 1; id <= 50; ++id) ASSERT_TRUE(queue.Add(id, "many"));
  ASSERT_EQ(queue.Next(), 1u);
  queue.Ended(1, 10);
  ASSERT_EQ(queue.Next(), 2u);
  queue.Ended(2, 10);
  ASSERT_TRUE(queue.Add(100, "one"));
  EXPECT_EQ(queue.Next(), 100u);
}

TEST(FairQueueTest, AFullQueueRefusesAndOneClientFillsHalf) {
  FairQueue queue = Queue(10);
  int greedy = 0;
  for (JobId id = 1; id <= 20; ++id) greedy += queue.Add(id, "greedy");
  EXPECT_EQ(greedy, 6);
  int others = 0;
  for (JobId id = 100; id < 120; ++id) others += queue.Add(id, std::to_string(id));
  EXPECT_EQ(others, 4);
  EXPECT_EQ(queue.waiting(), 10u);
  queue.AddAdmitted(200, "greedy");
  EXPECT_EQ(queue.waiting(), 11u);
}

TEST(FairQueueTest, AClientRunsNoMoreThanItMay) {
  FairQueue queue = Queue(100, 3);
  for (JobId id = 1; id <= 10; ++id) ASSERT_TRUE(queue.Add(id, "a"));
  for (JobId id = 1; id <= 3; ++id) ASSERT_EQ(queue.Next(), id);
  EXPECT_EQ(queue.Next(), std::nullopt);
  ASSERT_TRUE(queue.Add(11, "b"));
  EXPECT_EQ(queue.Next(), 11u);
  queue.Ended(2, 1);
  EXPECT_EQ(queue.Next(), 4u);
}

TEST(FairQueueTest, OnlyWaitingJobsAreTakenOut) {
  FairQueue queue = Queue();
  for (JobId id = 1; id <= 3; ++id) ASSERT_TRUE(queue.Add(id, "a"));
  ASSERT_EQ(queue.Next(), 1u);
  EXPECT_FALSE(queue.Remove(1));
  EXPECT_TRUE(queue.Remove(2));
  EXPECT_FALSE(queue.Remove(2));
  EXPECT_FALSE(queue.Remove(7));
  EXPECT_EQ(queue.Next(), 3u);
  EXPECT_EQ(queue.Next(), std::nullopt);
}

TEST(FairQueueTest, AnIdleClientSavesNothingUp) {
  FairQueue queue = Queue();
  // "late" was there at the beginning, then "busy" worked alone for long.
  ASSERT_TRUE(queue.Add(1, "late"));
  ASSERT_EQ(queue.Next(), 1u);
  queue.Ended(1, 1);
  for (JobId id = 10; id < 40; ++id) {
    ASSERT_TRUE(queue.Add(id, "busy"));
    ASSERT_EQ(queue.Next(), id);
    queue.Ended(id, 100);
    ASSERT_TRUE(queue.Add(id + 1000, "busy"));
    ASSERT_TRUE(queue.Remove(id + 1000));
  }
  int late = 0;
  for (JobId id = 100; id < 120; ++id) {
    ASSERT_TRUE(queue.Add(id, "late"));
    ASSERT_TRUE(queue.Add(id + 100, "busy"));
  }
  for (int turn = 0; turn < 20; ++turn) {
    const JobId id = queue.Next().value();
    late += id < 200;
    queue.Ended(id, 100);
  }
  EXPECT_NEAR(late, 10, 1);
}

// Clients with work get equal shares of what is used, though their jobs differ in number and size.
TEST(FairQueueTest, SharesAreEqualWhateverTheJobs) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  FairQueue queue = Queue(1000);
  const std::map<std::string, uint64_t> size = {{"large", 500}, {"middle", 60}, {"small", 3}};
  std::map<JobId, std::string> owners;
  std::map<std::string, int> waiting;
  std::map<std::string, uint64_t> used;
  std::vector<JobId> running;
  JobId last = 0;
  for (int turn = 0; turn < 200'000; ++turn) {
    for (const auto& [client, bytes] : size) {
      while (waiting[client] < 5) {
        owners[++last] = client;
        ++waiting[client];
        queue.AddAdmitted(last, client);
      }
    }
    while (running.size() < 3) {
      running.push_back(queue.Next().value());
      --waiting[owners[running.back()]];
    }
    const size_t ended = random() % running.size();
    const JobId id = running[ended];
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(ended));
    queue.Ended(id, size.at(owners[id]));
    used[owners[id]] += size.at(owners[id]);
    owners.erase(id);
  }
  for (const auto& [client, bytes] : used) {
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(used["large"]),
                0.02 * static_cast<double>(used["large"]))
        << client;
  }
}

}  // namespace
}  // namespace annulus::server
