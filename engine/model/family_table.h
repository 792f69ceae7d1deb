#ifndef ANNULUS_ENGINE_MODEL_FAMILY_TABLE_H_
#define ANNULUS_ENGINE_MODEL_FAMILY_TABLE_H_

#include <array>
#include <span>

#include "absl/strings/string_view.h"
#include "engine/model/families.h"

namespace annulus {

// What FindFamily looks names up in, besides Families().

// A model that sees and reads, of which the text half is served.
struct LargerModel {
  absl::string_view architecture;
  absl::string_view model_type;
  // ModelConfig::model_type that the text half may have; "": none. The first is that of a file that
  // does not say.
  std::array<absl::string_view, 2> text_types;
  bool flat = false;  // older files have no text_config: the text half's keys are the model's own
};
std::span<const LargerModel> LargerModels();

// A name that older files have for a family's architecture.
struct OlderName {
  absl::string_view name;
  absl::string_view architecture;
};
std::span<const OlderName> OlderNames();

// A type of models that is not served: what such a model has that nothing here computes, and the
// model_type of the served family that is nearest ("": none).
struct RefusedType {
  absl::string_view model_type;
  absl::string_view has;
  absl::string_view nearest;
};
std::span<const RefusedType> RefusedTypes();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FAMILY_TABLE_H_
