#include "kernels/cuda/tuning/unit_pairs.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "kernels/cuda/sm90/attention_pairs.h"

namespace annulus::cuda {

bool PairsServe(const AttentionParams& params, const PrefillPath& path) {
  const int dim = std::max(params.shape.k_dim, params.shape.v_dim);
  return path.hopper && params.shape.dtype == DType::kBF16 && dim >= kLeastPairedDim &&
         dim <= kMostPairedDim && params.window == 0;
}

std::vector<AttentionUnit> PairUnits(std::span<const AttentionUnit> units) {
  std::vector<AttentionUnit> paired;
  // Of units that wait for a second one: where that goes.
  std::map<std::tuple<int32_t, int32_t, int32_t>, size_t> waiting;
  for (const AttentionUnit& unit : units) {
    const std::tuple key(unit.item, unit.kv_head, unit.page_begin);
    const auto found = waiting.find(key);
    if (found != waiting.end()) {
      paired[found->second] = unit;
      waiting.erase(found);
      continue;
    }
    AttentionUnit none = unit;
    none.row_count = 0;
    waiting.emplace(key, paired.size() + 1);
    paired.push_back(unit);
    paired.push_back(none);
  }
  return paired;
}

}  // namespace annulus::cuda
