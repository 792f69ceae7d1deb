#ifndef ANNULUS_KERNELS_CPU_REFERENCE_ATTENTION_ROWS_H_
#define ANNULUS_KERNELS_CPU_REFERENCE_ATTENTION_ROWS_H_

#include <cstdint>
#include <vector>

#include "kernels/ops/attention.h"

// What the reference's two kinds of attention share.

namespace annulus::reference {

// The state of one row of one head.
struct RowState {
  float* o;
  float* lse;
};

// into = into (+) from, over v_dim values.
void MergeRow(RowState into, const float* from_o, float from_lse, int v_dim);

// Which of the item's pages kv head `kv_head` of row `row` may attend, before the mask; ascending.
std::vector<int32_t> ListedPages(const AttentionParams& params, const AttentionItem& item,
                                 int kv_head, int64_t row);

}  // namespace annulus::reference

#endif  // ANNULUS_KERNELS_CPU_REFERENCE_ATTENTION_ROWS_H_
