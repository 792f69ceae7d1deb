// Every row attends all keys.
#include "engine/sparse/policies/block_ranges.h"
#include "engine/sparse/policy_type.h"

namespace annulus::policies {

constinit const PolicyType kDense = {
    .name = "dense",
    .summary = "all keys",
    .append_blocks = [](const AttentionPolicy&, int, int32_t i,
                        std::vector<int32_t>& blocks) { AppendRange(0, i + 1, blocks); },
};

}  // namespace annulus::policies
