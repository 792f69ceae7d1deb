#ifndef ANNULUS_ENGINE_MODEL_FIELDS_LAYER_FIELDS_H_
#define ANNULUS_ENGINE_MODEL_FIELDS_LAYER_FIELDS_H_

#include "absl/status/status.h"
#include "engine/model/families.h"

namespace annulus {

// Parsers for the fields that say which layers slide, rotate and have experts. config.layers must
// have its final size. Errors as for ParseModelConfig.

// Sets `rope` of layers without rotary embedding to kNoRope.
absl::Status ParseNoRopeLayers(const JsonFields& fields, const Family& family, ModelConfig& config);

// Sets each layer's `window`. Call after ParseNoRopeLayers.
absl::Status ParseWindows(const JsonFields& fields, const Family& family, ModelConfig& config);

// Sets config.experts and which layers have experts.
absl::Status ParseExperts(const JsonFields& fields, const Family& family, ModelConfig& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FIELDS_LAYER_FIELDS_H_
