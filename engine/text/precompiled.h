#ifndef ANNULUS_ENGINE_TEXT_PRECOMPILED_H_
#define ANNULUS_ENGINE_TEXT_PRECOMPILED_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/character_map.h"
#include "engine/text/text_stage.h"

namespace annulus {

// The normalizer `Precompiled`: the character map of a sentencepiece model, in base 64.
//
// As the `tokenizers` package has it: a grapheme cluster of less than 6 bytes of which the map has
// a prefix becomes the replacement of the shortest one; else each of its characters is looked up.
// Cluster boundaries are those of Unicode 15. At most 5 bytes are held back.
absl::StatusOr<std::unique_ptr<TextFilter>> ParsePrecompiled(const JsonNode& node);

// The same map as sentencepiece itself uses it: at each place the longest match is replaced, but
// the longest of the texts in `kept` that stands there is kept as it is. Held back is as much as
// the longest of these, and at most CharacterMap::kMostKeyBytes.
std::unique_ptr<TextFilter> MakeLongestMatch(CharacterMap map,
                                             const std::vector<std::string>& kept);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_PRECOMPILED_H_
