#ifndef ANNULUS_BENCH_MODEL_MODEL_WORK_H_
#define ANNULUS_BENCH_MODEL_MODEL_WORK_H_

#include <cstdint>

#include "engine/model/model_config.h"
#include "kernels/base/dtype.h"

namespace annulus::bench {

// The arithmetic that a decoder's definition requires: two operations per multiply-add of its
// linear layers and of the causal half of attention. Norms, rope, softmax and the like are not
// counted. Neither is anything that the requested logits do not depend on: in the last layer, rows
// without logits need only keys and values.

// `density`, below: the share of pairs, 0..1, that layers without a window of their own attend.

// Operations for a prompt of `tokens` >= 1, from an empty context to the logits of its last row.
double PrefillFlops(const ModelConfig& config, int64_t tokens, double density = 1);

// Operations for one row that sees `depth` >= 0 keys before its own, including its logits.
double DecodeFlops(const ModelConfig& config, int64_t depth, double density = 1);

// The bytes that such a row must read, scales included: every weight of the layers once, in the
// dtype `weights`; the head, in the dtype that MatrixDType gives it; and the keys and values that
// the row sees, in the dtype `kv`.
double DecodeBytes(const ModelConfig& config, int64_t depth, DType weights, DType kv,
                   double density = 1);

// Bytes of one token's keys and values in all layers.
double KvBytesPerToken(const ModelConfig& config, DType kv);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_MODEL_MODEL_WORK_H_
