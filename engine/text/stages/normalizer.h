#ifndef ANNULUS_ENGINE_TEXT_STAGES_NORMALIZER_H_
#define ANNULUS_ENGINE_TEXT_STAGES_NORMALIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/pattern.h"
#include "engine/text/stages/text_stage.h"

namespace annulus {

// How long the output of any normalizer stage may be for `bytes` bytes of text.
constexpr uint64_t MaxNormalizedBytes(uint64_t bytes) { return 64 * bytes + 4096; }

// Replaces matches of `pattern` by `content`.
std::unique_ptr<TextFilter> MakeReplace(Pattern pattern, std::string content);

// Parses the member `normalizer` of a tokenizer.json: one of the kinds in normalizer.cc, a Sequence
// of them, or null (no filters: the text stays as it is). Normalizers rewrite the stretches between
// added tokens, one stretch for each. The filters return INVALID_ARGUMENT for text that grows
// beyond MaxNormalizedBytes.
absl::StatusOr<TextFilters> ParseNormalizer(const JsonNode& node);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_NORMALIZER_H_
