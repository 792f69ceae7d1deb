// The host meaning of kernels/cuda/common/.
#include "kernels/cuda/common/device.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/common/matrix.h"
#include "tests/support/cuda/block_runner.h"
#include "tests/support/cuda/operand.h"

namespace annulus::cuda {
namespace {

BlockRunner& Runner() { return BlockRunner::Current(); }

template <class T>
struct Shuffled {
  T value;
  int source;  // lane whose value is wanted
  T result;
};

template <class T>
T Shuffle(T value, int source) {
  ANNULUS_CHECK(source >= 0 && source < kWarp) << "lane " << source;
  Shuffled<T> own{value, source, {}};
  Runner().WarpCollective("a shuffle", &own, [](void* const* lanes) {
    for (int i = 0; i < kWarp; ++i) {
      auto* lane = static_cast<Shuffled<T>*>(lanes[i]);
      lane->result = static_cast<Shuffled<T>*>(lanes[lane->source])->value;
    }
  });
  return own.result;
}

struct Loaded {
  uint32_t* words;
  const void* row;
};

template <bool kTransposed>
void LoadFour(void* const* lanes) {
  for (int m = 0; m < 4; ++m) {
    uint16_t matrix[8][8];
    for (int r = 0; r < 8; ++r) {
      std::memcpy(matrix[r], static_cast<const Loaded*>(lanes[8 * m + r])->row, sizeof(Bytes16));
    }
    for (int i = 0; i < kWarp; ++i) {
      const int g = i / 4;
      const int t = i % 4;
      const uint32_t low = kTransposed ? matrix[2 * t][g] : matrix[g][2 * t];
      const uint32_t high = kTransposed ? matrix[2 * t + 1][g] : matrix[g][2 * t + 1];
      static_cast<const Loaded*>(lanes[i])->words[m] = low | high << 16;
    }
  }
}

struct Multiplied {
  float* c;
  const uint32_t* a;
  uint32_t b[2];
};

template <class T>
void MultiplyTiles(void* const* lanes) {
  float a[16][16];
  float b[16][8];
  for (int i = 0; i < kWarp; ++i) {
    const int g = i / 4;
    const int t = i % 4;
    const auto* lane = static_cast<const Multiplied*>(lanes[i]);
    for (int half = 0; half < 2; ++half) {
      const int shift = 16 * half;
      a[g][2 * t + half] = WidenOperand<T>(lane->a[0] >> shift);
      a[g + 8][2 * t + half] = WidenOperand<T>(lane->a[1] >> shift);
      a[g][2 * t + 8 + half] = WidenOperand<T>(lane->a[2] >> shift);
      a[g + 8][2 * t + 8 + half] = WidenOperand<T>(lane->a[3] >> shift);
      b[2 * t + half][g] = WidenOperand<T>(lane->b[0] >> shift);
      b[2 * t + 8 + half][g] = WidenOperand<T>(lane->b[1] >> shift);
    }
  }
  float c[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int i = 0; i < kWarp; ++i) {
    const int g = i / 4;
    const int t = i % 4;
    float* const own = static_cast<const Multiplied*>(lanes[i])->c;
    for (int j = 0; j < 4; ++j) own[j] += c[g + 8 * (j / 2)][2 * t + j % 2];
  }
}

template <class T>
void Multiply(const char* operation, float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
              uint32_t b1) {
  Multiplied own{c, a, {b0, b1}};
  Runner().WarpCollective(operation, &own, MultiplyTiles<T>);
}

}  // namespace

int ThreadIndex() { return Runner().thread(); }
int BlockThreads() { return Runner().grid().threads; }
int64_t BlockX() { return Runner().block_x(); }
int64_t BlockY() { return Runner().block_y(); }
int64_t GridX() { return Runner().grid().x; }
std::byte* SharedMemory() { return Runner().shared(); }
void SyncThreads() { Runner().BlockBarrier("SyncThreads", false); }
bool SyncThreadsOr(bool predicate) { return Runner().BlockBarrier("SyncThreadsOr", predicate); }
void SyncWarp() {
  Runner().WarpCollective("SyncWarp", nullptr, [](void* const*) {});
}
float ShuffleXor(float value, int mask) { return Shuffle(value, (ThreadIndex() % kWarp) ^ mask); }
uint32_t ShuffleXor(uint32_t value, int mask) {
  return Shuffle(value, (ThreadIndex() % kWarp) ^ mask);
}
float ShuffleFrom(float value, int lane) { return Shuffle(value, lane); }
uint32_t ShuffleFrom(uint32_t value, int lane) { return Shuffle(value, lane); }

uint32_t Ballot(bool predicate) {
  struct Asked {
    bool predicate;
    uint32_t result;
  };
  Asked own{predicate, 0};
  Runner().WarpCollective("a ballot", &own, [](void* const* lanes) {
    uint32_t bits = 0;
    for (int i = 0; i < kWarp; ++i) {
      bits |= static_cast<uint32_t>(static_cast<const Asked*>(lanes[i])->predicate) << i;
    }
    for (int i = 0; i < kWarp; ++i) static_cast<Asked*>(lanes[i])->result = bits;
  });
  return own.result;
}

float Exp2(float x) {
  const float result = std::exp2(x);
  return result < std::numeric_limits<float>::min() ? 0 : result;
}
float Log2(float x) { return std::log2(x); }
float Reciprocal(float x) { return 1 / x; }

void AsyncCopy16(void* shared, const void* source, bool present) {
  Runner().CheckShared(shared, sizeof(Bytes16), sizeof(Bytes16), "cp.async");
  ANNULUS_CHECK(!present || reinterpret_cast<uintptr_t>(source) % sizeof(Bytes16) == 0)
      << "cp.async from an address that is not a multiple of 16";
  Runner().QueueCopy(shared, present ? source : nullptr);
}
void AsyncCommit() { Runner().CommitCopies(); }
void AsyncWaitFor(int pending) { Runner().WaitForCopies(pending); }

void LoadMatrices(uint32_t (&words)[4], const void* row) {
  Runner().CheckShared(row, sizeof(Bytes16), sizeof(Bytes16), "ldmatrix");
  Loaded own{words, row};
  Runner().WarpCollective("ldmatrix", &own, LoadFour<false>);
}
void LoadTransposed(uint32_t (&words)[4], const void* row) {
  Runner().CheckShared(row, sizeof(Bytes16), sizeof(Bytes16), "ldmatrix.trans");
  Loaded own{words, row};
  Runner().WarpCollective("ldmatrix.trans", &own, LoadFour<true>);
}

void MultiplyAdd(BFloat16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Multiply<BFloat16>("mma of bf16", c, a, b0, b1);
}
void MultiplyAdd(Float16, float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Multiply<Float16>("mma of f16", c, a, b0, b1);
}

uint32_t Pack(BFloat16, float low, float high) {
  return ToBFloat16(low).bits | static_cast<uint32_t>(ToBFloat16(high).bits) << 16;
}
uint32_t Pack(Float16, float low, float high) {
  return ToFloat16(low).bits | static_cast<uint32_t>(ToFloat16(high).bits) << 16;
}

uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  const auto product = [&](int shift) {
    return WidenOperand<BFloat16>(a >> shift) * WidenOperand<BFloat16>(b >> shift);
  };
  return Pack(BFloat16{}, product(0), product(16));
}

uint32_t AddPairs(uint32_t a, uint32_t b) {
  const auto sum = [&](int shift) {
    return WidenOperand<BFloat16>(a >> shift) + WidenOperand<BFloat16>(b >> shift);
  };
  return Pack(BFloat16{}, sum(0), sum(16));
}
uint32_t MultiplyHalves(uint32_t a, uint32_t b) {
  const auto product = [&](int shift) {
    return WidenOperand<Float16>(a >> shift) * WidenOperand<Float16>(b >> shift);
  };
  return Pack(Float16{}, product(0), product(16));
}

uint32_t AddHalves(uint32_t a, uint32_t b) {
  const auto sum = [&](int shift) {
    return WidenOperand<Float16>(a >> shift) + WidenOperand<Float16>(b >> shift);
  };
  return Pack(Float16{}, sum(0), sum(16));
}
float WidenHalf(uint32_t bits) { return WidenOperand<Float16>(bits); }

uint32_t SelectBytes(uint32_t word, uint32_t selector) {
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t n = selector >> 4 * i & 0xfu;
    ANNULUS_CHECK(n <= 4) << "selector " << selector;
    if (n < 4) result |= (word >> 8 * n & 0xffu) << 8 * i;
  }
  return result;
}

uint32_t CombineBytes(uint32_t low, uint32_t high, uint32_t selector) {
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t n = selector >> 4 * i & 0xfu;
    ANNULUS_CHECK(n < 8) << "selector " << selector;
    result |= ((n < 4 ? low : high) >> 8 * (n % 4) & 0xffu) << 8 * i;
  }
  return result;
}

uint32_t HalvesOfSign(uint32_t word) { return (word >> 15 & 0x00010001u) * 0xffffu; }

}  // namespace annulus::cuda
