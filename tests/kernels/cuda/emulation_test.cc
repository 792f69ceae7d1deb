// The emulated execution model: layouts as the PTX ISA draws them, and the mistakes it must find.
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/common/device.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/matrix.h"

namespace annulus::cuda {
namespace {

TEST(EmulationTest, EveryThreadOfEveryBlockRunsOnce) {
  std::vector<int> runs(3 * 2 * 64);
  RunGrid({.x = 3, .y = 2, .threads = 64}, [&] {
    ASSERT_EQ(BlockThreads(), 64);
    ASSERT_EQ(GridX(), 3);
    ++runs[(BlockY() * 3 + BlockX()) * 64 + ThreadIndex()];
  });
  EXPECT_EQ(std::count(runs.begin(), runs.end(), 1), 3 * 2 * 64);
  RunGrid({.x = 0, .threads = 32}, [] { FAIL() << "an empty grid"; });
}

TEST(EmulationTest, BarriersOrderSharedMemoryInEitherOrderOfWarps) {
  RunGrid({.x = 2, .threads = 128, .shared_bytes = 128 * sizeof(int)}, [] {
    int* const shared = reinterpret_cast<int*>(SharedMemory());
    for (int round = 0; round < 3; ++round) {
      shared[ThreadIndex()] = ThreadIndex() + round;
      SyncThreads();
      const int other = 127 - ThreadIndex();
      ASSERT_EQ(shared[other], other + round);
      EXPECT_EQ(SyncThreadsOr(ThreadIndex() == 77 && round == 1), round == 1);
    }
  });
}

// What only works in one order of lanes fails: in every second block the lane below comes later.
TEST(EmulationTest, LanesAreOrderedBySyncWarpAlone) {
  RunGrid({.x = 2, .threads = 32, .shared_bytes = 32 * sizeof(int)}, [] {
    int* const shared = reinterpret_cast<int*>(SharedMemory());
    const int below = Larger(Lane() - 1, 0);
    shared[Lane()] = Lane();
    const int early = shared[below];
    SyncWarp();
    EXPECT_EQ(early, BlockX() == 0 || Lane() == 0 ? below : -1);  // -1: not written yet
    EXPECT_EQ(shared[below], below);
  });
}

TEST(EmulationTest, ShufflesMoveValuesBetweenLanes) {
  RunGrid({.threads = 64}, [] {
    EXPECT_EQ(ShuffleXor(static_cast<float>(ThreadIndex()), 5), ThreadIndex() ^ 5);
    EXPECT_EQ(ShuffleXor(static_cast<uint32_t>(ThreadIndex()), 16),
              static_cast<uint32_t>(ThreadIndex() ^ 16));
    EXPECT_EQ(ShuffleFrom(static_cast<float>(ThreadIndex()), 3), ThreadIndex() / 32 * 32 + 3);
    EXPECT_EQ(Ballot(Lane() % 8 == 1), 0x02020202u);
    EXPECT_EQ(CountBits(Ballot(Lane() != 7 && ThreadIndex() < 40)), ThreadIndex() < 32 ? 31 : 7);
    EXPECT_EQ(WarpSum(1.0f), 32);
    EXPECT_EQ(WarpMax(static_cast<uint32_t>(Lane())), 31u);
  });
}

// PTX ISA, ldmatrix: without .trans a lane receives elements (lane / 4, 2 * (lane % 4)) and its
// right neighbour; with it, (2 * (lane % 4), lane / 4) and its lower one.
TEST(EmulationTest, LoadsMatricesInTheLayoutOfThePtxIsa) {
  RunGrid({.threads = 32, .shared_bytes = 4 * 8 * 8 * 2}, [] {
    auto* const elements = reinterpret_cast<uint16_t*>(SharedMemory());
    for (int i = Lane(); i < 256; i += kWarp) elements[i] = static_cast<uint16_t>(i);
    SyncWarp();
    const uint16_t* const row = elements + Lane() * 8;  // row lane % 8 of matrix lane / 8
    uint32_t plain[4];
    uint32_t transposed[4];
    LoadMatrices(plain, row);
    LoadTransposed(transposed, row);
    for (uint32_t m = 0; m < 4; ++m) {
      const uint32_t g = Lane() / 4;
      const uint32_t t = Lane() % 4;
      const uint32_t first = 64 * m + 8 * g + 2 * t;
      EXPECT_EQ(plain[m], first | (first + 1) << 16);
      const uint32_t upper = 64 * m + 8 * (2 * t) + g;
      EXPECT_EQ(transposed[m], upper | (upper + 8) << 16);
    }
  });
}

// PTX ISA, mma.m16n8k16: a product against plain loops, each fragment filled element by element
// from the tables of rows and columns there.
template <class T>
void ExpectProduct() {
  std::mt19937 random(7);
  float a[16][16];
  float b[16][8];
  for (auto& row : a) {
    for (float& x : row) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
  }
  for (auto& row : b) {
    for (float& x : row) x = static_cast<float>(static_cast<int>(random() % 17) - 8);
  }
  RunGrid({.threads = 32}, [&] {
    const int group = Lane() / 4;
    const int in_group = Lane() % 4;
    uint32_t fragment_a[4];
    for (int i = 0; i < 8; i += 2) {
      const int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
      const int column = in_group * 2 + (i >= 4 ? 8 : 0);
      fragment_a[i / 2] = Pack(T{}, a[row][column], a[row][column + 1]);
    }
    uint32_t fragment_b[2];
    for (int i = 0; i < 4; i += 2) {
      const int row = in_group * 2 + (i >= 2 ? 8 : 0);
      fragment_b[i / 2] = Pack(T{}, b[row][group], b[row + 1][group]);
    }
    float c[4] = {1, 2, 3, 4};
    MultiplyAdd(T{}, c, fragment_a, fragment_b[0], fragment_b[1]);
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? group : group + 8;
      const int column = in_group * 2 + (i & 1);
      float expected = static_cast<float>(i + 1);
      for (int k = 0; k < 16; ++k) expected += a[row][k] * b[k][column];
      EXPECT_EQ(c[i], expected) << "row " << row << " column " << column;
    }
  });
}

TEST(EmulationTest, MultipliesInTheLayoutOfThePtxIsa) {
  ExpectProduct<BFloat16>();
  ExpectProduct<Float16>();
}

TEST(EmulationTest, CopiesArriveWhenTheyAreWaitedForAndNotBefore) {
  alignas(16) const uint32_t source[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  RunGrid({.threads = 32, .shared_bytes = 32 * 3 * 16}, [&] {
    auto* const own = reinterpret_cast<uint32_t*>(SharedMemory() + Lane() * 48);
    AsyncCopy16(own, source, true);
    AsyncCommit();
    AsyncCopy16(own + 4, source + 4, true);
    AsyncCopy16(own + 8, nullptr, false);
    AsyncCommit();
    EXPECT_EQ(own[0], 0xffffffffu);
    AsyncWait<1>();
    EXPECT_EQ(own[3], 4u);
    EXPECT_EQ(own[4], 0xffffffffu);
    AsyncWait<0>();
    EXPECT_EQ(own[7], 8u);
    EXPECT_EQ(own[8], 0u);
  });
}

using EmulationDeathTest = ::testing::Test;

TEST(EmulationDeathTest, FindsWhatHardwareMayLetPass) {
  const Grid grid{.threads = 64, .shared_bytes = 64};
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         if (ThreadIndex() != 9) SyncThreads();
                       }),
               "waits at SyncThreads for threads that do not come");
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         if (Lane() != 9) ShuffleXor(1.0f, 1);
                       }),
               "waits at a shuffle for lanes that do not come");
  EXPECT_DEATH(RunGrid(grid, [] { Lane() == 9 ? SyncWarp() : void(ShuffleXor(1.0f, 1)); }),
               "lanes of a warp are at");
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         uint32_t words[4];
                         LoadMatrices(words, SharedMemory() + 64);
                       }),
               "ldmatrix at 64 of 64 bytes of shared memory");
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         uint32_t words[4];
                         LoadTransposed(words, SharedMemory() + 8);
                       }),
               "not a multiple of 16");
  EXPECT_DEATH(RunGrid(grid, [] { AsyncCopy16(SharedMemory() - 16, SharedMemory(), true); }),
               "cp.async at -16");
  EXPECT_DEATH(RunGrid(grid, [] { AsyncCopy16(SharedMemory(), SharedMemory(), true); }),
               "without waiting for its asynchronous copies");
  EXPECT_DEATH(RunGrid(grid, [] { SharedMemory()[64] = std::byte{1}; }),
               "beyond the 64 of shared memory|use-after-poison");
  EXPECT_DEATH(RunGrid({.threads = 33}, [] {}), "33 threads per block");
}

}  // namespace
}  // namespace annulus::cuda
