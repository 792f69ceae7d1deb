// Emulated products with rows of depth as columns: the layout of the PTX ISA.
#include "kernels/cuda/common/wgmma_rows.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/common/hopper.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/common/wgmma.h"

namespace annulus::cuda {
namespace {

// D = A B and D += A B against plain loops: A in registers by the tables of rows and columns of the
// PTX ISA, B with depth along the rows of a panel, from its 16th column on.
template <int kColumns>
void ExpectProductByRows() {
  std::mt19937 random(7);
  const auto draw = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
  std::vector<float> a(64 * 32);
  std::vector<float> b(32 * kColumns);
  std::generate(a.begin(), a.end(), draw);
  std::generate(b.begin(), b.end(), draw);
  RunGrid({.x = 2, .threads = 128, .shared_bytes = kColumns * kPanelRowBytes}, [&] {
    for (int i = ThreadIndex(); i < 32 * kColumns; i += 128) {
      const int k = 16 + i / kColumns;
      const int n = i % kColumns;
      std::byte* const chunk = SharedMemory() + PanelOffset(n, k / 8);
      reinterpret_cast<uint16_t*>(chunk)[k % 8] = static_cast<uint16_t>(Pack(BFloat16{}, b[i], 0));
    }
    FenceSharedForEngines();
    SyncThreads();
    const int row = WarpIndex() * 16 + Lane() / 4;
    const int column = Lane() % 4 * 2;
    float fresh[kColumns / 2];
    float added[kColumns / 2];
    std::fill_n(fresh, kColumns / 2, 3.0f);
    std::fill_n(added, kColumns / 2, 3.0f);
    uint32_t fragments[2][4];
    WgmmaFence();
    for (int step = 0; step < 2; ++step) {
      for (int i = 0; i < 4; ++i) {
        const float* const from = &a[(row + i % 2 * 8) * 32 + 16 * step + column + i / 2 * 8];
        fragments[step][i] = Pack(BFloat16{}, from[0], from[1]);
      }
      const uint64_t rows = PanelMatrix(SharedMemory() + (16 + 16 * step) * 2, kOnePanel);
      MultiplyByRows(BFloat16{}, fresh, fragments[step], rows, step > 0);
      MultiplyByRows(BFloat16{}, added, fragments[step], rows, true);
    }
    EXPECT_EQ(fresh[0], 3);
    WgmmaCommit();
    WgmmaWait<0>();
    SettleRegisters(fresh);
    SettleRegisters(added);
    for (int i = 0; i < kColumns / 2; ++i) {
      float expected = 0;
      for (int k = 0; k < 32; ++k) {
        expected +=
            a[(row + i % 4 / 2 * 8) * 32 + k] * b[k * kColumns + i / 4 * 8 + column + i % 2];
      }
      ASSERT_EQ(fresh[i], expected) << "thread " << ThreadIndex() << " element " << i;
      ASSERT_EQ(added[i], 3 + expected) << "thread " << ThreadIndex() << " element " << i;
    }
  });
}

TEST(WgmmaRowsTest, ColumnsAreRowsOfDepth) {
  ExpectProductByRows<32>();
  ExpectProductByRows<64>();
}

}  // namespace
}  // namespace annulus::cuda
