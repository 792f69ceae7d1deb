#ifndef ANNULUS_ENGINE_MODEL_MADE_RECALL_MODEL_H_
#define ANNULUS_ENGINE_MODEL_MADE_RECALL_MODEL_H_

#include <memory>

#include "engine/model/files/tensor_source.h"
#include "engine/model/model_config.h"

namespace annulus {

// The builtin recall model: an ordinary Llama-shaped decoder whose weights are computed instead of
// trained. It continues a text with what followed the last kRecallContext bytes earlier in it: an
// induction head (Olsson et al. 2022, "In-context Learning and Induction Heads") with an exact
// memory. It serves as a demonstration and a test fixture: it knows nothing but the text in front
// of it, and is right only if positions, pages, windows, ring and head are. Construction, measured
// margins and limits: engine/model/RECALL.md.

// How many bytes of context must match for the model to consider two places equal.
inline constexpr int kRecallContext = 8;

// `layers`: 2, or 3 for a variant whose last layer adds nothing. In that variant the layer with
// full attention is not the last and therefore computes every row, not only those whose logits are
// needed. Tokens are bytes. Id 256 ends a text and, like any other, is predicted if it followed the
// same context earlier.
ModelConfig RecallConfig(int layers);

// The weights for RecallConfig(layers), as float32. Every value is exact in bf16 and the same on
// all machines. Takes about 1.2 MB per layer.
std::unique_ptr<TensorSource> MakeRecallTensors(int layers);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_MADE_RECALL_MODEL_H_
