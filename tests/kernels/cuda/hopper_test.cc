// The emulated engines of compute capability 9.0: layouts as the PTX ISA draws them, and the
// mistakes that must be found.
#include "kernels/cuda/common/hopper.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/matrix.h"
#include "kernels/cuda/common/wgmma.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {
namespace {

// Element (r, c) of a panel that begins at `panel`.
uint16_t& PanelElement(std::byte* panel, int r, int c) {
  return *reinterpret_cast<uint16_t*>(panel + PanelOffset(r, c / 8) + c % 8 * 2);
}

TEST(HopperTest, PhasesEndWithArrivalsAndWithNothingBefore) {
  RunGrid({.x = 2, .threads = 96, .shared_bytes = 64}, [] {
    auto* const barriers = reinterpret_cast<PhaseBarrier*>(SharedMemory());
    auto* const value = reinterpret_cast<int*>(SharedMemory() + 32);
    if (ThreadIndex() == 0) {
      InitPhaseBarrier(barriers[0], 1);
      InitPhaseBarrier(barriers[1], 2);
    }
    SyncThreads();
    for (int round = 0; round < 5; ++round) {
      const int parity = round % 2;
      if (WarpIndex() == 0) {
        WaitForPhase(barriers[1], parity ^ 1);  // the first passes
        if (Lane() == 0) {
          *value = round;
          Arrive(barriers[0]);
        }
      } else {
        WaitForPhase(barriers[0], parity);
        EXPECT_EQ(*value, round);
        SyncWarp();
        if (Lane() == 0) Arrive(barriers[1]);
      }
    }
  });
}

// A box comes with its bytes counted, rows of 128 bytes with exchanged chunks, and zeros beyond the
// tensor; not before somebody must wait for it.
TEST(HopperTest, BoxesArriveSwizzledAndLate) {
  constexpr int kColumns = 80;
  constexpr int kRows = 32;
  constexpr int kPages = 3;
  alignas(16) static uint16_t values[kPages * kRows * kColumns];
  for (int i = 0; i < kPages * kRows * kColumns; ++i) values[i] = static_cast<uint16_t>(i + 1);
  PagesTensor tensor;
  tensor.base = reinterpret_cast<const std::byte*>(values);
  tensor.columns = kColumns;
  tensor.rows = kRows;
  tensor.pages = kPages;
  tensor.row_bytes = kColumns * 2;
  tensor.page_stride = kRows * kColumns * 2;
  tensor.box_rows = 16;
  const TensorMap map = EncodeTensorMap(tensor).value();
  RunGrid({.x = 2, .threads = 32, .shared_bytes = 2 * 2048 + 8}, [&] {
    auto& barrier = *reinterpret_cast<PhaseBarrier*>(SharedMemory() + 2 * 2048);
    if (Lane() == 0) {
      InitPhaseBarrier(barrier, 1);
      CopyBox(SharedMemory(), map, barrier, 0, 16, 2);
      ArriveExpecting(barrier, 2 * 2048);
      CopyBox(SharedMemory() + 2048, map, barrier, kPanelColumns, 0, 1);
      EXPECT_EQ(PanelElement(SharedMemory(), 0, 0), 0xffff);
    }
    SyncWarp();
    WaitForPhase(barrier, 0);
    for (int r = 0; r < 16; ++r) {
      for (int c = 0; c < kPanelColumns; ++c) {
        EXPECT_EQ(PanelElement(SharedMemory(), r, c), ((2 * kRows + 16 + r) * kColumns + c + 1));
        const int column = kPanelColumns + c;
        EXPECT_EQ(PanelElement(SharedMemory() + 2048, r, c),
                  column < kColumns ? (kRows + r) * kColumns + column + 1 : 0);
      }
    }
    // Chunk c of row r stands at c ^ (r % 8).
    EXPECT_EQ(reinterpret_cast<uint16_t*>(SharedMemory())[5 * 64 + (3 ^ 5) * 8],
              (2 * kRows + 16 + 5) * kColumns + 3 * 8 + 1);
  });
}

// Rows of a box of codes have 128 of them; bytes that are no tensor come as they are.
TEST(HopperTest, CodesAndBytesArriveLate) {
  constexpr int kColumns = 144;
  constexpr int kRows = 16;
  alignas(16) static uint8_t codes[kRows * kColumns];
  for (int i = 0; i < kRows * kColumns; ++i) codes[i] = static_cast<uint8_t>(i * 7 + 1);
  PagesTensor tensor;
  tensor.base = reinterpret_cast<const std::byte*>(codes);
  tensor.dtype = DType::kF8E4M3;
  tensor.columns = kColumns;
  tensor.rows = kRows;
  tensor.pages = 1;
  tensor.row_bytes = kColumns;
  tensor.page_stride = sizeof(codes);
  tensor.box_rows = 8;
  const TensorMap map = EncodeTensorMap(tensor).value();
  RunGrid({.x = 2, .threads = 32, .shared_bytes = 2 * 1024 + 48 + 8}, [&] {
    const auto* const shared = reinterpret_cast<const uint8_t*>(SharedMemory());
    auto& barrier = *reinterpret_cast<PhaseBarrier*>(SharedMemory() + 2 * 1024 + 48);
    if (Lane() == 0) {
      InitPhaseBarrier(barrier, 1);
      ArriveExpecting(barrier, 2 * 1024 + 48);
      CopyBox(SharedMemory(), map, barrier, 0, 8, 0);
      CopyBox(SharedMemory() + 1024, map, barrier, kCodeColumns, 0, 0);
      CopyBytes(SharedMemory() + 2 * 1024, tensor.base + 32, 48, barrier);
      EXPECT_EQ(shared[2 * 1024], 0xff);
    }
    SyncWarp();
    WaitForPhase(barrier, 0);
    for (int r = 0; r < 8; ++r) {
      for (int c = 0; c < kCodeColumns; ++c) {
        const int at = PanelOffset(r, c / 16) + c % 16;
        EXPECT_EQ(shared[at], codes[(8 + r) * kColumns + c]);
        const int column = kCodeColumns + c;
        EXPECT_EQ(shared[1024 + at], column < kColumns ? codes[r * kColumns + column] : 0);
      }
    }
    for (int i = 0; i < 48; ++i) EXPECT_EQ(shared[2 * 1024 + i], codes[32 + i]);
  });
}

// Every code, in either place, as pages hold it.
TEST(HopperTest, CodesWidenExactly) {
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t other = code * 31 % 256;
    const uint32_t word = code | other << 8 | (255 - code) << 16 | (255 - other) << 24;
    for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kF8E5M2}) {
      float expected[4];
      for (int i = 0; i < 4; ++i) {
        const auto byte = static_cast<uint8_t>(word >> 8 * i);
        expected[i] = static_cast<int8_t>(byte);
        if (dtype != DType::kI8) ConvertToFloat(dtype, &byte, &expected[i], 1);
      }
      for (int p = 0; p < 2; ++p) {
        const bool scaled = dtype == DType::kI8;  // widened to bf16, the others to f16
        const uint32_t pair = scaled ? WidenInt8(word, p == 0 ? CodePair::k01 : CodePair::k23)
                                     : WidenToHalves(dtype, word >> 16 * p);
        for (int i = 0; i < 2; ++i) {
          const auto half = static_cast<uint16_t>(pair >> 16 * i);
          const float got = scaled ? ToFloat(BFloat16{half}) : ToFloat(Float16{half});
          const float wanted = expected[2 * p + i];
          EXPECT_TRUE(got == wanted || (got != got && wanted != wanted))
              << DTypeName(dtype) << " " << word << ": " << got << ", not " << wanted;
        }
      }
    }
  }
}

TEST(HopperTest, SomeWarpsMeet) {
  RunGrid({.x = 2, .threads = 128, .shared_bytes = 16}, [] {
    auto* const turn = reinterpret_cast<int*>(SharedMemory());
    if (ThreadIndex() == 0) *turn = 0;
    SyncThreads();
    // Warps 0 and 1, then 2 and 3, three times over; warps 2 and 3 let the others begin.
    const int group = WarpIndex() / 2;
    if (group == 1) ArriveSome(1, 128);
    for (int round = 0; round < 3; ++round) {
      SyncSome(1 + group, 128);
      EXPECT_EQ(*turn, 2 * round + group);
      SyncSome(3 + group, 64);
      if (ThreadIndex() % 64 == 0) ++*turn;
      ArriveSome(2 - group, 128);
    }
    EXPECT_EQ(SyncSomeOr(5 + group, 64, ThreadIndex() == 70), group == 1);
    EXPECT_FALSE(SyncSomeOr(5 + group, 64, false));
  });
}

// D = A B and D += A B against plain loops. A and B stand in panels; A also in registers, by the
// tables of rows and columns of the PTX ISA; B with depth along the rows, or down the columns.
template <class T, int kColumns>
void ExpectWarpgroupProduct(bool registers) {
  std::mt19937 random(7);
  const auto draw = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
  std::vector<float> a(64 * 32);
  std::vector<float> b(32 * kColumns);
  std::generate(a.begin(), a.end(), draw);
  std::generate(b.begin(), b.end(), draw);
  constexpr int kPanelBytes = 128 * kPanelRowBytes;
  RunGrid({.x = 2, .threads = 128, .shared_bytes = 5 * kPanelBytes}, [&] {
    std::byte* const a_panel = SharedMemory();
    std::byte* const b_panels = SharedMemory() + kPanelBytes;
    const auto bits = [](float x) { return static_cast<uint16_t>(Pack(T{}, x, 0)); };
    for (int i = ThreadIndex(); i < 64 * 32; i += 128) {
      PanelElement(a_panel, i / 32, 32 + i % 32) = bits(a[i]);
    }
    for (int i = ThreadIndex(); i < 32 * kColumns; i += 128) {
      const int k = i / kColumns;
      const int n = i % kColumns;
      if (registers) {
        PanelElement(b_panels + n / 64 * kPanelBytes, 16 + k, n % 64) = bits(b[i]);
      } else {
        PanelElement(b_panels, n, 16 + k) = bits(b[i]);
      }
    }
    FenceSharedForEngines();
    SyncThreads();
    const int row = WarpIndex() * 16 + Lane() / 4;
    const int column = Lane() % 4 * 2;
    float d[kColumns / 2];
    for (float& x : d) x = 3;
    WgmmaFence();
    uint32_t fragments[2][4];
    for (int step = 0; step < 2; ++step) {
      const int k = 16 * step;
      if (registers) {
        for (int i = 0; i < 4; ++i) {
          const float* const from = &a[(row + i % 2 * 8) * 32 + k + column + i / 2 * 8];
          fragments[step][i] = Pack(T{}, from[0], from[1]);
        }
        MultiplyRegisters(T{}, d, fragments[step],
                          PanelMatrix(b_panels + (16 + k) * kPanelRowBytes, kPanelBytes));
      } else if constexpr (kColumns <= 128) {
        MultiplyShared(T{}, d, PanelMatrix(a_panel + (32 + k) * 2, kOnePanel),
                       PanelMatrix(b_panels + (16 + k) * 2, kOnePanel), step > 0);
      }
    }
    EXPECT_EQ(d[0], 3);
    WgmmaCommit();
    WgmmaWait<0>();
    SettleRegisters(d);
    for (int i = 0; i < kColumns / 2; ++i) {
      float expected = registers ? 3 : 0;
      for (int k = 0; k < 32; ++k) {
        expected +=
            a[(row + i % 4 / 2 * 8) * 32 + k] * b[k * kColumns + i / 4 * 8 + column + i % 2];
      }
      ASSERT_EQ(d[i], expected) << "thread " << ThreadIndex() << " element " << i;
    }
  });
}

TEST(HopperTest, WarpgroupsMultiplyInTheLayoutOfThePtxIsa) {
  ExpectWarpgroupProduct<BFloat16, 64>(false);
  ExpectWarpgroupProduct<Float16, 64>(false);
  ExpectWarpgroupProduct<BFloat16, 128>(false);
  ExpectWarpgroupProduct<Float16, 128>(false);
  ExpectWarpgroupProduct<BFloat16, 128>(true);
  ExpectWarpgroupProduct<Float16, 128>(true);
  ExpectWarpgroupProduct<BFloat16, 64>(true);
  ExpectWarpgroupProduct<Float16, 64>(true);
  ExpectWarpgroupProduct<BFloat16, 256>(true);
  ExpectWarpgroupProduct<Float16, 256>(true);
}

// The same of e4m3, of which depth runs along the rows of both sides; of 64 columns with A in
// registers.
template <int kColumns>
void ExpectProductOfCodes() {
  std::mt19937 random(9);
  const auto draw = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
  constexpr int kDepth = 64;
  std::vector<float> a(64 * kDepth);
  std::vector<float> b(kDepth * kColumns);
  std::generate(a.begin(), a.end(), draw);
  std::generate(b.begin(), b.end(), draw);
  constexpr int kPanelBytes = 128 * kPanelRowBytes;
  RunGrid({.threads = 128, .shared_bytes = 2 * kPanelBytes}, [&] {
    std::byte* const a_panel = SharedMemory();
    std::byte* const b_panel = SharedMemory() + kPanelBytes;
    const auto put = [](std::byte* panel, int row, int column, float value) {
      panel[PanelOffset(row, column / 16) + column % 16] = std::byte{ToFloat8E4M3(value).bits};
    };
    for (int i = ThreadIndex(); i < 64 * kDepth; i += 128) {
      put(a_panel, i / kDepth, 32 + i % kDepth, a[i]);
    }
    for (int i = ThreadIndex(); i < kDepth * kColumns; i += 128) {
      put(b_panel, i % kColumns, 64 + i / kColumns, b[i]);
    }
    FenceSharedForEngines();
    SyncThreads();
    const int row = WarpIndex() * 16 + Lane() / 4;
    float d[kColumns / 2];
    for (float& x : d) x = 3;
    WgmmaFence();
    uint32_t words[kDepth / 32][4];
    for (int k = 0; k < kDepth; k += 32) {
      const uint64_t columns = PanelMatrix(b_panel + 64 + k, kOnePanel);
      if constexpr (kColumns == 64) {
        uint32_t(&own)[4] = words[k / 32];
        for (int i = 0; i < 4; ++i) {
          const float* const from =
              &a[(row + i % 2 * 8) * kDepth + k + i / 2 * 16 + Lane() % 4 * 4];
          own[i] = PackCodes(from[0], from[1], from[2], from[3]);
        }
        MultiplyRegisters(Float8E4M3{}, d, own, columns, k > 0);
      } else {
        MultiplyShared(Float8E4M3{}, d, PanelMatrix(a_panel + 32 + k, kOnePanel), columns, k > 0);
      }
    }
    WgmmaCommit();
    WgmmaWait<0>();
    SettleRegisters(d);
    for (int i = 0; i < kColumns / 2; ++i) {
      float expected = 0;
      for (int k = 0; k < kDepth; ++k) {
        expected += a[(row + i % 4 / 2 * 8) * kDepth + k] *
                    b[k * kColumns + i / 4 * 8 + Lane() % 4 * 2 + i % 2];
      }
      ASSERT_EQ(d[i], expected) << "thread " << ThreadIndex() << " element " << i;
    }
  });
}

TEST(HopperTest, WarpgroupsMultiplyCodesInTheLayoutOfThePtxIsa) {
  ExpectProductOfCodes<128>();
  ExpectProductOfCodes<64>();
}

TEST(HopperTest, FourNumbersBecomeTheNearestCodes) {
  EXPECT_EQ(PackCodes(1, -2, 0.0f, 448), 0x7e00c038u);
  EXPECT_EQ(PackCodes(1e9f, -1e9f, 0x1p-10f, 0x1.8p-9f), 0x0200fe7eu);  // ties go to even
  EXPECT_EQ(PackCodes(std::nanf(""), 1.0625f, 1.1875f, 17) & 0x7fffffffu, 0x583a387fu);
}

TEST(HopperTest, GroupsOfProductsEndInOrder) {
  RunGrid({.threads = 128, .shared_bytes = 128 * kPanelRowBytes}, [] {
    for (int i = ThreadIndex(); i < 128 * 64; i += 128) {
      PanelElement(SharedMemory(), i / 64, i % 64) = 0x3f80;  // 1
    }
    SyncThreads();
    float first[64] = {};
    float second[64] = {};
    const uint64_t ones = PanelMatrix(SharedMemory(), kOnePanel);
    WgmmaFence();
    MultiplyShared(BFloat16{}, first, ones, ones, false);
    WgmmaCommit();
    MultiplyShared(BFloat16{}, second, ones, ones, false);
    WgmmaCommit();
    WgmmaWait<1>();
    EXPECT_EQ(first[0], 16);
    EXPECT_EQ(second[63], 0);
    WgmmaWait<0>();
    EXPECT_EQ(second[63], 16);
  });
}

using HopperDeathTest = ::testing::Test;

TEST(HopperDeathTest, FindsWhatHardwareMayLetPass) {
  const Grid grid{.threads = 128, .shared_bytes = 1024};
  const auto barrier = []() -> PhaseBarrier& {
    return *reinterpret_cast<PhaseBarrier*>(SharedMemory());
  };
  EXPECT_DEATH(RunGrid(grid, [&] { Arrive(barrier()); }), "was not initialised");
  EXPECT_DEATH(RunGrid(grid,
                       [&] {
                         if (ThreadIndex() == 0) InitPhaseBarrier(barrier(), 3);
                         SyncThreads();
                         if (ThreadIndex() < 2) Arrive(barrier());
                         WaitForPhase(barrier(), 0);
                       }),
               "waits at a phase barrier for what does not come");
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         if (WarpIndex() < 2) SyncSome(1, 96);
                       }),
               "waits at a barrier of some threads");
  EXPECT_DEATH(RunGrid(grid, [] { SyncSome(1, 32 + 32 * (ThreadIndex() % 2)); }), "barrier 1 of");
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         float d[64] = {};
                         const uint64_t a = PanelMatrix(SharedMemory(), kOnePanel);
                         MultiplyShared(BFloat16{}, d, a, a, false);
                       }),
               "without a fence");
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         float d[64] = {};
                         const uint64_t a = PanelMatrix(SharedMemory(), kOnePanel);
                         WgmmaFence();
                         MultiplyShared(BFloat16{}, d, a, a, false);
                       }),
               "without waiting for its products");
  EXPECT_DEATH(RunGrid(grid,
                       [] {
                         float d[64] = {};
                         const uint64_t a = PanelMatrix(SharedMemory(), kOnePanel);
                         WgmmaFence();
                         MultiplyShared(BFloat16{}, d, a, a, false);
                         WgmmaCommit();
                         WgmmaWait<0>();
                       }),
               "wgmma at .* of 1024 bytes of shared memory");
  alignas(16) static const std::byte source[1024] = {};
  const TensorMap map = EncodeTensorMap({source, DType::kBF16, 64, 8, 1, 128, 1024, 8}).value();
  EXPECT_DEATH(RunGrid(grid,
                       [&] {
                         if (ThreadIndex() != 0) return;
                         auto& end = *reinterpret_cast<PhaseBarrier*>(SharedMemory() + 1016);
                         InitPhaseBarrier(end, 1);
                         CopyBox(SharedMemory() + 128, map, end, 0, 0, 0);
                       }),
               "the copy of a box at 128 of 1024");
  EXPECT_DEATH(RunGrid({.threads = 128, .shared_bytes = 2048},
                       [&] {
                         if (ThreadIndex() != 0) return;
                         auto& end = *reinterpret_cast<PhaseBarrier*>(SharedMemory() + 1024);
                         InitPhaseBarrier(end, 1);
                         CopyBox(SharedMemory(), map, end, 0, 0, 0);
                       }),
               "ended before 1 copies of the engine");
}

}  // namespace
}  // namespace annulus::cuda
