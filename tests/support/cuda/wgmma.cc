// The host meaning of kernels/cuda/common/wgmma.h and wgmma_rows.h.
#include "kernels/cuda/common/wgmma.h"

#include <array>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/cuda/common/wgmma_rows.h"
#include "tests/support/cuda/block_runner.h"
#include "tests/support/cuda/operand.h"

namespace annulus::cuda {
namespace {

// A matrix descriptor, as the PTX ISA draws it.
struct Described {
  uint32_t address;
  uint32_t leading;  // bytes
  uint32_t stride;   // bytes
  int swizzle;

  explicit Described(uint64_t bits)
      : address(static_cast<uint32_t>(bits & 0x3fffu) << 4),
        leading(static_cast<uint32_t>(bits >> 16 & 0x3fffu) << 4),
        stride(static_cast<uint32_t>(bits >> 32 & 0x3fffu) << 4),
        swizzle(static_cast<int>(bits >> 62)) {
    ANNULUS_CHECK(swizzle == 1) << "only rows of 128 bytes are swizzled here, not mode " << swizzle;
    ANNULUS_CHECK((bits >> 49 & 7u) == 0) << "a base offset";
  }
};

// The element of kBytes bytes that stands at `plain` before chunks are exchanged.
template <size_t kBytes>
uint32_t ReadElement(uint32_t plain) {
  const BlockRunner& runner = BlockRunner::Current();
  const std::byte* const at = runner.shared() + (plain ^ (plain >> 7 & 7u) << 4);
  runner.CheckShared(at, kBytes, kBytes, "wgmma");
  uint32_t bits = 0;
  std::memcpy(&bits, at, kBytes);
  return bits;
}

// Element (outer, k), where `outer` is a row of A or a column of B. Depth along the rows: groups of
// 8 rows are `stride` apart. Depth from row to row: 64 elements of `outer` stand in a row, the next
// 64 are `leading` further, and groups of 8 steps of depth are `stride` apart.
template <size_t kBytes>
uint32_t ElementOf(const Described& matrix, bool outer_in_rows, uint32_t outer, uint32_t k) {
  if (outer_in_rows) {
    return ReadElement<kBytes>(matrix.address + outer / 64 * matrix.leading + outer % 64 * 2 +
                               k / 8 * matrix.stride + k % 8 * 128);
  }
  return ReadElement<kBytes>(matrix.address + outer / 8 * matrix.stride + outer % 8 * 128 +
                             k * static_cast<uint32_t>(kBytes));
}

// What a lane brings to a product.
struct WgmmaLane {
  float* d;
  const uint32_t* a;  // null: in shared memory
  uint64_t a_matrix;
  uint64_t b_matrix;
  bool add;
  bool depth_down = false;  // of b: a row for each step of depth
};

// One warp's 16 rows of a product.
template <class T, int kColumns>
struct WarpProduct {
  static constexpr bool kCodes = sizeof(T) == 1;
  static constexpr int kDepth = 32 / sizeof(T);
  static constexpr int kInWord = 4 / sizeof(T);

  std::array<WgmmaLane, kWarp> lanes;
  int first_row;

  void operator()() const {
    float a[16][kDepth];
    float b[kDepth][kColumns];
    float d[16][kColumns] = {};
    LoadA(a);
    const Described matrix(lanes[0].b_matrix);
    for (uint32_t k = 0; k < kDepth; ++k) {
      for (uint32_t n = 0; n < kColumns; ++n) {
        b[k][n] = WidenOperand<T>(ElementOf<sizeof(T)>(matrix, lanes[0].depth_down, n, k));
      }
    }
    for (int row = 0; row < 16; ++row) {
      for (int k = 0; k < kDepth; ++k) {
        for (int n = 0; n < kColumns; ++n) d[row][n] += a[row][k] * b[k][n];
      }
    }
    for (int i = 0; i < kWarp; ++i) {
      for (int j = 0; j < kColumns / 2; ++j) {
        const float sum = d[i / 4 + j % 4 / 2 * 8][j / 4 * 8 + i % 4 * 2 + j % 2];
        float& own = lanes[i].d[j];
        own = lanes[i].add ? own + sum : sum;
      }
    }
  }

  void LoadA(float (&a)[16][kDepth]) const {
    if (lanes[0].a == nullptr) {
      const Described matrix(lanes[0].a_matrix);
      for (uint32_t row = 0; row < 16; ++row) {
        for (uint32_t k = 0; k < kDepth; ++k) {
          a[row][k] = WidenOperand<T>(
              ElementOf<sizeof(T)>(matrix, false, static_cast<uint32_t>(first_row) + row, k));
        }
      }
      return;
    }
    for (int i = 0; i < kWarp; ++i) {
      for (int word = 0; word < 4; ++word) {
        for (int e = 0; e < kInWord; ++e) {
          a[i / 4 + word % 2 * 8][i % 4 * kInWord + word / 2 * (kDepth / 2) + e] =
              WidenOperand<T>(lanes[i].a[word] >> e * 8 * sizeof(T));
        }
      }
    }
  }
};

template <class T, int kColumns>
void IssueProduct(void* const* lanes) {
  WarpProduct<T, kColumns> product;
  for (int i = 0; i < kWarp; ++i) {
    product.lanes[i] = *static_cast<const WgmmaLane*>(lanes[i]);
    ANNULUS_CHECK(product.lanes[i].a_matrix == product.lanes[0].a_matrix &&
                  product.lanes[i].b_matrix == product.lanes[0].b_matrix)
        << "lanes of a warp name different matrices";
  }
  BlockRunner& runner = BlockRunner::Current();
  product.first_row = runner.thread() / kWarp % 4 * 16;
  runner.products().Issue(product);
}

template <class T, int kColumns>
void Product(WgmmaLane lane) {
  BlockRunner::Current().WarpCollective("wgmma", &lane, IssueProduct<T, kColumns>);
}

}  // namespace

void WgmmaFence() {
  BlockRunner::Current().WarpCollective(
      "wgmma.fence", nullptr, [](void* const*) { BlockRunner::Current().products().Fence(); });
}

void WgmmaCommit() {
  BlockRunner::Current().WarpCollective("wgmma.commit_group", nullptr, [](void* const*) {
    BlockRunner::Current().products().Commit();
  });
}

void WgmmaWaitFor(int pending) {
  BlockRunner::Current().WarpCollective("wgmma.wait_group", &pending, [](void* const* lanes) {
    BlockRunner::Current().products().WaitFor(*static_cast<const int*>(lanes[0]));
  });
}

void MultiplyShared(BFloat16, float (&d)[32], uint64_t a, uint64_t b, bool add) {
  Product<BFloat16, 64>({d, nullptr, a, b, add});
}
void MultiplyShared(Float16, float (&d)[32], uint64_t a, uint64_t b, bool add) {
  Product<Float16, 64>({d, nullptr, a, b, add});
}
void MultiplyShared(BFloat16, float (&d)[64], uint64_t a, uint64_t b, bool add) {
  Product<BFloat16, 128>({d, nullptr, a, b, add});
}
void MultiplyShared(Float16, float (&d)[64], uint64_t a, uint64_t b, bool add) {
  Product<Float16, 128>({d, nullptr, a, b, add});
}
void MultiplyRegisters(BFloat16, float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  Product<BFloat16, 64>({d, a, 0, b, true, /*depth_down=*/true});
}
void MultiplyRegisters(Float16, float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  Product<Float16, 64>({d, a, 0, b, true, /*depth_down=*/true});
}
void MultiplyRegisters(BFloat16, float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  Product<BFloat16, 128>({d, a, 0, b, true, /*depth_down=*/true});
}
void MultiplyRegisters(Float16, float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  Product<Float16, 128>({d, a, 0, b, true, /*depth_down=*/true});
}
void MultiplyRegisters(BFloat16, float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  Product<BFloat16, 256>({d, a, 0, b, true, /*depth_down=*/true});
}
void MultiplyRegisters(Float16, float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  Product<Float16, 256>({d, a, 0, b, true, /*depth_down=*/true});
}

void MultiplyByRows(BFloat16, float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool add) {
  Product<BFloat16, 32>({d, a, 0, b, add});
}
void MultiplyByRows(BFloat16, float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  Product<BFloat16, 64>({d, a, 0, b, add});
}
void MultiplyShared(Float8E4M3, float (&d)[64], uint64_t a, uint64_t b, bool add) {
  Product<Float8E4M3, 128>({d, nullptr, a, b, add});
}
void MultiplyRegisters(Float8E4M3, float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool add) {
  Product<Float8E4M3, 64>({d, a, 0, b, add});
}

}  // namespace annulus::cuda
