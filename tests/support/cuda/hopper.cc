// The host meaning of kernels/cuda/common/hopper.h and multicast.h.
#include "kernels/cuda/common/hopper.h"

#include <cstring>
#include <functional>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/cuda/common/multicast.h"
#include "tests/support/cuda/block_runner.h"
#include "tests/support/cuda/cluster_runner.h"

namespace annulus::cuda {
namespace {

// What PhaseBarrier::state is here.
struct PhaseState {
  int32_t bytes;      // still to come in this phase; less than 0: more came than is expected so far
  uint16_t arrivals;  // still to come in this phase
  uint16_t expected : 15;
  uint16_t parity : 1;  // of the current phase
};
static_assert(sizeof(PhaseState) == sizeof(PhaseBarrier));

// Of a barrier of that block.
PhaseState LoadPhase(const BlockRunner& block, const PhaseBarrier& barrier) {
  block.CheckShared(&barrier, sizeof(barrier), sizeof(barrier), "a phase barrier");
  PhaseState state;
  std::memcpy(&state, &barrier, sizeof(state));
  ANNULUS_CHECK(state.arrivals <= state.expected && state.expected <= 1024)
      << "a phase barrier that was not initialised";
  return state;
}

PhaseState LoadPhase(const PhaseBarrier& barrier) {
  return LoadPhase(BlockRunner::Current(), barrier);
}

void StorePhase(PhaseBarrier& barrier, PhaseState state) {
  if (state.arrivals == 0 && state.bytes == 0) {
    state.arrivals = state.expected;
    state.parity ^= 1;
  }
  std::memcpy(&barrier, &state, sizeof(state));
}

// As a copy of the box at (page, row, column) of `tensor` leaves shared memory. Bits 4 to 6 of
// every address are exchanged by bits 7 to 9.
void WriteBox(std::byte* shared, uint32_t address, const PagesTensor& tensor, int column, int row,
              int page) {
  const auto element = static_cast<int>(DTypeSize(tensor.dtype));
  for (int r = 0; r < tensor.box_rows; ++r) {
    for (int c = 0; c < BoxColumns(tensor.dtype); ++c) {
      const uint32_t plain = address + static_cast<uint32_t>(r * kPanelRowBytes + c * element);
      std::byte* const to = shared + (plain ^ (plain >> 7 & 7u) << 4);
      const bool inside = column + c >= 0 && column + c < tensor.columns && row + r >= 0 &&
                          row + r < tensor.rows && page >= 0 && page < tensor.pages;
      if (inside) {
        std::memcpy(to,
                    tensor.base + page * tensor.page_stride + (row + r) * tensor.row_bytes +
                        (column + c) * element,
                    element);
      } else {
        std::memset(to, 0, element);
      }
    }
  }
}

// Does `write` of `bytes` bytes when it must; they count for `barrier` then.
void QueueBytes(PhaseBarrier& barrier, int bytes, std::function<void()> write) {
  LoadPhase(barrier);
  BlockRunner::Current().QueueEngine([&barrier, bytes, write = std::move(write)] {
    write();
    PhaseState state = LoadPhase(barrier);
    state.bytes -= bytes;
    StorePhase(barrier, state);
  });
}

}  // namespace

uint32_t SharedAddress(const void* shared) {
  const BlockRunner& runner = BlockRunner::Current();
  runner.CheckShared(shared, 1, 1, "an address");
  return static_cast<uint32_t>(static_cast<const std::byte*>(shared) - runner.shared());
}

void InitPhaseBarrier(PhaseBarrier& barrier, int arrivals) {
  BlockRunner::Current().CheckShared(&barrier, sizeof(barrier), sizeof(barrier), "mbarrier.init");
  ANNULUS_CHECK(arrivals > 0 && arrivals <= 1024) << arrivals << " arrivals";
  const auto count = static_cast<uint16_t>(arrivals);
  const PhaseState state{0, count, count, 0};
  std::memcpy(&barrier, &state, sizeof(state));
}

namespace {

// One arrival at a barrier of that block.
void ArriveAt(const BlockRunner& block, PhaseBarrier& barrier, int bytes) {
  PhaseState state = LoadPhase(block, barrier);
  ANNULUS_CHECK(state.arrivals > 0) << "more arrivals at a phase barrier than it was made for";
  ANNULUS_CHECK(bytes >= 0 && bytes < 1 << 20) << bytes << " bytes expected";
  state.bytes += bytes;
  --state.arrivals;
  StorePhase(barrier, state);
}

// Where block `rank` of the calling thread's cluster has what its own block has at `own`.
template <class T>
T* In(int rank, T* own) {
  const BlockRunner& block = BlockRunner::Current();
  const auto at = reinterpret_cast<const std::byte*>(own) - block.shared();
  return reinterpret_cast<T*>(block.cluster().BlockAt(rank).shared() + at);
}

}  // namespace

void ArriveExpecting(PhaseBarrier& barrier, int bytes) {
  ArriveAt(BlockRunner::Current(), barrier, bytes);
}

void ArriveIn(PhaseBarrier& barrier, int rank) {
  ArriveAt(BlockRunner::Current().cluster().BlockAt(rank), *In(rank, &barrier), 0);
}

void Arrive(PhaseBarrier& barrier) { ArriveExpecting(barrier, 0); }

void WaitForPhase(PhaseBarrier& barrier, int parity) {
  ANNULUS_CHECK(parity == 0 || parity == 1) << "parity " << parity;
  BlockRunner::Current().WaitUntil("a phase barrier",
                                   [&] { return LoadPhase(barrier).parity != parity; });
}

void CopyBox(void* shared, const TensorMap& map, PhaseBarrier& barrier, int column, int row,
             int page) {
  PagesTensor tensor;
  std::memcpy(static_cast<void*>(&tensor), &map, sizeof(tensor));
  BlockRunner& runner = BlockRunner::Current();
  const int bytes = tensor.box_rows * kPanelRowBytes;
  runner.CheckShared(shared, bytes, 8 * kPanelRowBytes, "the copy of a box");
  const uint32_t address = SharedAddress(shared);
  QueueBytes(barrier, bytes, [&runner, tensor, address, column, row, page] {
    WriteBox(runner.shared(), address, tensor, column, row, page);
  });
}

// To each block on its own, as late as it may be.
void CopyBoxToFirst(int blocks, void* shared, const TensorMap& map, PhaseBarrier& barrier,
                    int column, int row, int page) {
  PagesTensor tensor;
  std::memcpy(static_cast<void*>(&tensor), &map, sizeof(tensor));
  BlockRunner& runner = BlockRunner::Current();
  const int bytes = tensor.box_rows * kPanelRowBytes;
  runner.CheckShared(shared, bytes, 8 * kPanelRowBytes, "the copy of a box");
  const uint32_t address = SharedAddress(shared);
  const ClusterRunner& cluster = runner.cluster();
  ANNULUS_CHECK(blocks <= cluster.size()) << "a copy to " << blocks << " of " << cluster.size();
  for (int rank = 0; rank < blocks; ++rank) {
    PhaseBarrier& there = *In(rank, &barrier);
    runner.QueueEngine([&cluster, &there, rank, tensor, address, bytes, column, row, page] {
      const BlockRunner& block = cluster.BlockAt(rank);
      WriteBox(block.shared(), address, tensor, column, row, page);
      PhaseState state = LoadPhase(block, there);
      state.bytes -= bytes;
      StorePhase(there, state);
    });
  }
}

void CopyBytes(void* shared, const std::byte* source, int bytes, PhaseBarrier& barrier) {
  ANNULUS_CHECK(bytes > 0 && bytes % 16 == 0 && reinterpret_cast<uintptr_t>(source) % 16 == 0)
      << bytes << " bytes from " << static_cast<const void*>(source);
  BlockRunner::Current().CheckShared(shared, bytes, 16, "the copy of bytes");
  QueueBytes(barrier, bytes, [shared, source, bytes] { std::memcpy(shared, source, bytes); });
}

void SyncSome(int barrier, int threads) {
  BlockRunner::Current().SomeBarrier(barrier, threads, true, false);
}
void ArriveSome(int barrier, int threads) {
  BlockRunner::Current().SomeBarrier(barrier, threads, false, false);
}
bool SyncSomeOr(int barrier, int threads, bool predicate) {
  return BlockRunner::Current().SomeBarrier(barrier, threads, true, predicate);
}

uint32_t WidenToHalves(DType dtype, uint32_t codes) {
  float values[2];
  const uint8_t bytes[] = {static_cast<uint8_t>(codes), static_cast<uint8_t>(codes >> 8)};
  ConvertToFloat(dtype, bytes, values, 2);
  return uint32_t{ToFloat16(values[0]).bits} | uint32_t{ToFloat16(values[1]).bits} << 16;
}

uint32_t PackCodes(float first, float second, float third, float fourth) {
  uint32_t packed = 0;
  for (const float value : {fourth, third, second, first}) {
    packed = packed << 8 | ToFloat8E4M3(value).bits;
  }
  return packed;
}

}  // namespace annulus::cuda
