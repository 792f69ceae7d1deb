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

// A family that is not served, by the part of its architecture's name before "For" or "Model", and
// the model_type of the served one that it descends from or led to.
struct Relative {
  absl::string_view stem;
  absl::string_view served;
};
std::span<const Relative> Relatives();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FAMILY_TABLE_H_
