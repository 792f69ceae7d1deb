#ifndef ANNULUS_ENGINE_MODEL_FIELDS_GEMMA_FIELDS_H_
#define ANNULUS_ENGINE_MODEL_FIELDS_GEMMA_FIELDS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/json_fields.h"
#include "engine/model/model_config.h"

namespace annulus {

// Parsers for the fields that only Gemma has. Errors as for ParseModelConfig.

// A soft cap, or 0 where the key holds null.
absl::StatusOr<float> SoftCap(const JsonFields& fields, const char* key, double absent);

// Gemma 4: what differs between its layers: shapes, whose keys and values they attend, the width of
// their blocks. Call when layers have their windows and the shape of those that slide.
absl::Status ParseGemma4Layers(const JsonFields& fields, ModelConfig& config);

// Gemma 4: what all of its layers have. Call after ParseExperts.
absl::Status ParseGemma4(const JsonFields& fields, ModelConfig& config);

// Gemma 3n: what differs between its layers: widths of blocks, where their gates are cut off, whose
// keys and values they attend. Call when layers have their windows.
absl::Status ParseGemma3nLayers(const JsonFields& fields, ModelConfig& config);

// Gemma 3n: what all of its layers have. `logits_cap`: the default of final_logit_softcapping.
absl::Status ParseGemma3n(const JsonFields& fields, double logits_cap, ModelConfig& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FIELDS_GEMMA_FIELDS_H_
