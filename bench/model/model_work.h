#ifndef ANNULUS_BENCH_MODEL_MODEL_WORK_H_
#define ANNULUS_BENCH_MODEL_MODEL_WORK_H_

#include <cstdint>

#include "engine/model/model_config.h"
#include "kernels/base/dtype.h"

namespace annulus {

// The arithmetic that a decoder's definition asks for: two operations for each multiply-add of its
// linear layers and of the causal half of attention. Norms, rope, softmax and the like count
// nothing, and neither does what the asked-for logits do not depend on: in the last layer only rows
// with logits need more than keys and values.

// `density`: share of the pairs that layers without a window of their own attend, 0..1.

// A prompt of `tokens` >= 1 from an empty context to the logits of its last row.
double PrefillFlops(const ModelConfig& config, int64_t tokens, double density = 1);

// One row that sees `depth` >= 0 keys before it and its own, to its logits.
double DecodeFlops(const ModelConfig& config, int64_t depth, double density = 1);

// The bytes that such a row must read: every weight of the layers once as `weights` with its
// scales, the head as it is held then (MatrixDType), and the keys and values that it sees as `kv`
// with theirs.
double DecodeBytes(const ModelConfig& config, int64_t depth, DType weights, DType kv,
                   double density = 1);

// Bytes of keys and values of one token, all layers.
double KvBytesPerToken(const ModelConfig& config, DType kv);

}  // namespace annulus

#endif  // ANNULUS_BENCH_MODEL_MODEL_WORK_H_
