// Emulated clusters of blocks: what they exchange, and the mistakes that must be found.
#include "kernels/cuda/common/cluster.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/common/device.h"

namespace annulus::cuda {
namespace {

int* SharedInts() { return reinterpret_cast<int*>(SharedMemory()); }

TEST(ClusterTest, BlocksReadEachOthersSharedMemory) {
  constexpr int kCluster = 4;
  std::vector<int> sums(12 * 2);
  RunClusters({.x = 12, .y = 2, .threads = 64, .shared_bytes = 64 * sizeof(int)}, kCluster, [&] {
    ASSERT_EQ(ClusterRank(), BlockX() % kCluster);
    const int first = static_cast<int>(BlockX() / kCluster * kCluster);
    for (int round = 0; round < 3; ++round) {
      SharedInts()[ThreadIndex()] = static_cast<int>(BlockX()) * 100 + ThreadIndex() + round;
      SyncCluster();
      for (int rank = 0; rank < kCluster; ++rank) {
        const int other = 63 - ThreadIndex();
        const int* const there = InBlock(SharedInts() + other, rank);
        ASSERT_EQ(*there, (first + rank) * 100 + other + round);
        if (ThreadIndex() == 0) sums[BlockY() * 12 + BlockX()] += *there;
      }
      SyncCluster();
    }
  });
  for (int block = 0; block < 24; ++block) {
    const int first = block % 12 / kCluster * kCluster;
    EXPECT_EQ(sums[block], 3 * (4 * first + 6) * 100 + 12 * 63 + 12) << block;
  }
}

TEST(ClusterTest, BlocksWriteIntoEachOthersSharedMemory) {
  RunClusters({.x = 16, .threads = 32, .shared_bytes = 32 * sizeof(int)}, 8, [] {
    SyncCluster();  // all blocks have begun
    *InBlock(SharedInts() + Lane(), (ClusterRank() + 1) % 8) = ClusterRank();
    SyncCluster();
    EXPECT_EQ(SharedInts()[Lane()], (ClusterRank() + 7) % 8);
  });
}

// What only works in one order of blocks fails: in every second cluster the first comes last.
TEST(ClusterTest, BlocksAreOrderedBySyncClusterAlone) {
  RunClusters({.x = 4, .threads = 32, .shared_bytes = 32 * sizeof(int)}, 2, [] {
    SharedInts()[Lane()] = 7;
    SyncWarp();
    const int early = *InBlock(SharedInts() + Lane(), 1 - ClusterRank());
    const bool second = ClusterRank() == 1;
    const bool backwards = BlockX() >= 2;
    EXPECT_EQ(early, second != backwards ? 7 : -1);  // -1: not written yet
    SyncCluster();
    EXPECT_EQ(*InBlock(SharedInts() + Lane(), 1 - ClusterRank()), 7);
    SyncCluster();
  });
}

// A GPU would have given the memory to another block.
TEST(ClusterTest, MemoryOfABlockThatEndedIsLost) {
  std::vector<int> seen;
  RunClusters({.x = 4, .threads = 32, .shared_bytes = 32 * sizeof(int)}, 2, [&] {
    SharedInts()[Lane()] = 7;
    const int* const there = InBlock(SharedInts() + Lane(), 1 - ClusterRank());
    SyncCluster();
    if (ClusterRank() == 0 && Lane() == 0) seen.push_back(*there);  // without another SyncCluster
  });
  // The block that comes to the barrier last goes on first.
  EXPECT_EQ(seen, (std::vector<int>{-1, 7}));
}

TEST(ClusterTest, AClusterOfOneIsABlock) {
  int runs = 0;
  RunClusters({.x = 3, .threads = 32}, 1, [&] {
    EXPECT_EQ(ClusterRank(), 0);
    SyncCluster();
    ++runs;
  });
  EXPECT_EQ(runs, 3 * 32);
}

using ClusterDeathTest = ::testing::Test;

TEST(ClusterDeathTest, FindsWhatHardwareRefusesOrMayLetPass) {
  const Grid grid{.x = 4, .threads = 64, .shared_bytes = 64};
  const auto nothing = [] {};
  EXPECT_DEATH(RunClusters({.x = 6, .threads = 32}, 4, nothing), "6 blocks in clusters of 4");
  EXPECT_DEATH(RunClusters({.x = 16, .threads = 32}, 16, nothing), "a cluster of 16 blocks");
  EXPECT_DEATH(RunClusters(grid, 2,
                           [] {
                             if (ClusterRank() == 0) SyncCluster();
                           }),
               "waits at a barrier of a cluster for what does not come");
  EXPECT_DEATH(RunClusters(grid, 2,
                           [] {
                             if (Lane() != 9) SyncCluster();
                           }),
               "waits at SyncCluster for lanes that do not come");
  EXPECT_DEATH(RunClusters(grid, 2, [] { InBlock(SharedMemory(), 2); }),
               "block 2 of a cluster of 2");
  EXPECT_DEATH(RunClusters(grid, 2, [] { InBlock(SharedMemory() + 64, 1); }),
               "an address for another block at 64 of 64 bytes");
  EXPECT_DEATH(RunClusters(grid, 2,
                           [] {
                             if (ClusterRank() == 1) InBlock(SharedMemory(), 0);
                           }),
               "block 0 of the cluster has ended");
}

}  // namespace
}  // namespace annulus::cuda
