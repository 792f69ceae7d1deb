#ifndef ANNULUS_ENGINE_MODEL_RECALL_MODEL_H_
#define ANNULUS_ENGINE_MODEL_RECALL_MODEL_H_

#include <memory>

#include "engine/model/model_config.h"
#include "engine/model/tensor_source.h"

namespace annulus {

// The builtin recall model: an ordinary Llama-shaped decoder whose weights are computed, not
// trained. It continues a text with what followed the last kRecallContext bytes earlier in it: an
// induction head (Olsson et al. 2022, "In-context Learning and Induction Heads") with an exact
// memory. A demonstration and a fixture: it knows nothing but the text in front of it, and it is
// right only if positions, pages, windows, ring and head are. Construction, measured margins and
// limits: engine/model/RECALL.md.

// Bytes of context that two places must share for one to be taken for the other.
inline constexpr int kRecallContext = 8;

// `layers` is 2, or 3 for the variant whose last layer adds nothing: with it the full layer is not
// the last one and so computes every row, not only those whose logits are wanted. Tokens are bytes;
// id 256 ends a text and, like any other, is predicted where the same context was followed by it.
ModelConfig RecallConfig(int layers);

// The weights for RecallConfig(layers), float32. Every value is exact in bf16, and the same on all
// machines. Needs about 1.2 MB per layer.
std::unique_ptr<TensorSource> MakeRecallTensors(int layers);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_RECALL_MODEL_H_
