#ifndef ANNULUS_KERNELS_CUDA_TUNING_UNIT_PAIRS_H_
#define ANNULUS_KERNELS_CUDA_TUNING_UNIT_PAIRS_H_

#include <span>
#include <vector>

#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/tuning/attention_path.h"

namespace annulus::cuda {

// Whether units of many rows go to sm90/attention_pairs.h: bf16 pages of kLeastPairedDim to
// kMostPairedDim columns, without a window, on the path of sm90/. With a window, units of other
// rows begin with other keys. Pure.
bool PairsServe(const AttentionParams& params, const PrefillPath& path);

// Units in pairs 2 p and 2 p + 1: of one item and kv head, and of pages of which one unit's are the
// first of the other's. Pairs have the order of their first units in `units`, and each unit is
// paired with the next one that fits. So units sorted by SortUnits stay so, but for the second
// ones. A unit that none fits is followed by one without rows. Pure.
std::vector<AttentionUnit> PairUnits(std::span<const AttentionUnit> units);

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_TUNING_UNIT_PAIRS_H_
