#ifndef ANNULUS_ENGINE_MODEL_LAYER_FIELDS_H_
#define ANNULUS_ENGINE_MODEL_LAYER_FIELDS_H_

#include "absl/status/status.h"
#include "engine/model/families.h"

namespace annulus {

// Which layers slide, rotate and have experts. config.layers has its size. Errors as for
// ParseModelConfig.

// Layers without rotary embedding: their `rope` becomes kNoRope.
absl::Status ParseNoRopeLayers(const JsonFields& fields, const Family& family, ModelConfig& config);

// Each layer's `window`. After ParseNoRopeLayers.
absl::Status ParseWindows(const JsonFields& fields, const Family& family, ModelConfig& config);

// config.experts and which layers have them.
absl::Status ParseExperts(const JsonFields& fields, const Family& family, ModelConfig& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_LAYER_FIELDS_H_
