#ifndef ANNULUS_ENGINE_MODEL_WEIGHTS_UNUSED_TENSORS_H_
#define ANNULUS_ENGINE_MODEL_WEIGHTS_UNUSED_TENSORS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/weights/matrix_reader.h"
#include "engine/model/weights/weight_slots.h"

namespace annulus {

// Checks the tensors of the checkpoint that `slots` do not read. Unused tensors of the decoder mean
// that config.json belongs to another model: INVALID_ARGUMENT names them. Exceptions are tensors
// without influence: a second copy of a tied embedding, precomputed rotary tables and masks, and
// the static scales of inputs, keys and values in float8 checkpoints. These, and tensors outside
// the decoder (the vision half of a larger model, adapters for images), are counted and named in at
// most one warning. So are those of layers for guessing, in one of their own.
absl::StatusOr<std::vector<std::string>> CheckUnusedTensors(const WeightSlots& slots,
                                                            const TensorNames& names,
                                                            const TensorSource& source,
                                                            const MatrixReader& reader);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_WEIGHTS_UNUSED_TENSORS_H_
