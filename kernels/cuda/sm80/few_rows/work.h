#ifndef ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WORK_H_
#define ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WORK_H_

#include "kernels/cuda/common/device.h"
#include "kernels/cuda/sm80/linear.h"

// Which rows a block of a product of few rows multiplies, and with whose weights. If rows chose
// experts, the launch has blocks for every choice. Each looks up its expert in device memory; the
// blocks of an expert's first choice take all rows that chose it, and the others have no work. So
// each chosen expert's weights are read once, and the host need not know the choices.

namespace annulus::cuda {

static_assert(kMostChoosingRows <= kFewRows && kFewRows <= kWarp);

// The rows that chose the block's expert, in order. In shared memory.
struct BlockRows {
  int count;
  int32_t inputs[kFewRows];
  int32_t outputs[kFewRows];
};

// What a block multiplies.
struct Work {
  LinearArguments linear;  // with the block's expert's weights and bias
  int tiles;
  int rows;
  int listed_at;  // offset of BlockRows in shared memory; -1: row r is row r of input and output

  ANNULUS_DEVICE int64_t Input(int r) const { return listed_at < 0 ? r : Listed().inputs[r]; }
  ANNULUS_DEVICE int64_t Output(int r) const { return listed_at < 0 ? r : Listed().outputs[r]; }
  // A pointer member, which might be null, would hide from the compiler that this is shared memory.
  ANNULUS_DEVICE const BlockRows& Listed() const {
    return *reinterpret_cast<const BlockRows*>(SharedMemory() + listed_at);
  }
};

// Called by one warp. Lists no rows if choice BlockY() is not the first that names the expert.
ANNULUS_DEVICE void ListRows(const FewRowsArguments& a, int32_t expert, BlockRows& list) {
  const int chosen = a.choices.chosen;
  const int rows = static_cast<int>(a.linear.output.rows) / chosen;
  const bool shared = a.linear.input.rows != a.linear.output.rows;
  int found = -1;  // the choice of row `lane`
  for (int i = 0; Lane() < rows && i < chosen; ++i) {
    if (a.choices.experts[Lane() * chosen + i] == expert) found = Lane() * chosen + i;
  }
  const uint32_t lanes = Ballot(found >= 0);
  if (found < 0) return;
  const int place = CountBits(lanes & ((1u << Lane()) - 1));
  list.inputs[place] = shared ? Lane() : found;
  list.outputs[place] = found;
  if (place == 0) list.count = found == BlockY() ? CountBits(lanes) : 0;
}

// `list_at` is the offset of shared memory that only this list uses, for the whole kernel.
ANNULUS_DEVICE Work WorkOfBlock(const FewRowsArguments& a, int list_at) {
  Work work{a.linear, a.tiles, static_cast<int>(a.linear.input.rows), -1};
  if (a.choices.experts == nullptr) return work;
  const int32_t expert = a.choices.experts[BlockY()];
  auto& list = *reinterpret_cast<BlockRows*>(SharedMemory() + list_at);
  if (WarpIndex() == 0) ListRows(a, expert, list);
  SyncThreads();
  const ExpertAddress& at = a.choices.addresses[expert];
  WeightView& weight = work.linear.weight;
  if (weight.scales != nullptr) weight.scales = at.weight + (weight.scales - weight.values);
  weight.values = at.weight;
  work.linear.bias = at.bias;
  work.rows = list.count;
  work.listed_at = list_at;
  return work;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_FEW_ROWS_WORK_H_
