#ifndef ANNULUS_ENGINE_MODEL_FIELDS_ROPE_FIELDS_H_
#define ANNULUS_ENGINE_MODEL_FIELDS_ROPE_FIELDS_H_

#include "absl/status/status.h"
#include "engine/model/families.h"

namespace annulus {

// Reads the rope settings of a config.json into config.ropes, config.rope_context and each layer's
// `rope`: `rope_theta` with `rope_scaling` (Transformers 4), or `rope_parameters` (Transformers 5).
// max_context and the layers' windows and shapes must be set. Errors as for ParseModelConfig.
absl::Status ParseRopes(const JsonFields& fields, const Family& family, ModelConfig& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FIELDS_ROPE_FIELDS_H_
