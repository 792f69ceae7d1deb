#ifndef ANNULUS_ENGINE_TEXT_STAGES_PRECOMPILED_H_
#define ANNULUS_ENGINE_TEXT_STAGES_PRECOMPILED_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/character_map.h"
#include "engine/text/stages/text_stage.h"

namespace annulus {

// The normalizer `Precompiled`: a sentencepiece model's character map in base 64.
//
// Behaves like the `tokenizers` package: if a grapheme cluster of less than 6 bytes starts with a
// text in the map, the replacement of the shortest such text replaces the cluster; otherwise each
// of its characters is looked up. Cluster boundaries follow Unicode 15. Holds back at most 5 bytes.
absl::StatusOr<std::unique_ptr<TextFilter>> ParsePrecompiled(const JsonNode& node);

// Applies the same map as sentencepiece itself does. At each position, if the text starts with any
// of `kept`, the longest of these stays unchanged; otherwise the longest match in the map is
// replaced. Holds back as much as the longest text of `kept` or of the map, whichever is longer.
std::unique_ptr<TextFilter> MakeLongestMatch(CharacterMap map,
                                             const std::vector<std::string>& kept);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_PRECOMPILED_H_
