#ifndef ANNULUS_ENGINE_GGUF_GGUF_NAMES_H_
#define ANNULUS_ENGINE_GGUF_GGUF_NAMES_H_

#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_families.h"

namespace annulus {

// The name in a checkpoint of one of the model's tensors, or empty.
absl::string_view GgufModelTensor(absl::string_view name);

// The name below a layer of one of its tensors, both without ".weight" or ".bias" (but a whole name
// if the checkpoint's has neither ending); or empty.
absl::string_view GgufLayerTensor(const GgufFamily& family, absl::string_view name);

// The name below a layer before ".experts." and that of a projection behind the number of an
// expert, for `name` like "ffn_up_exps.weight"; `projection` is empty if there is none.
struct GgufExpertNames {
  absl::string_view block;
  absl::string_view projection;
};
GgufExpertNames GgufExpertTensor(const GgufFamily& family, absl::string_view name);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_NAMES_H_
