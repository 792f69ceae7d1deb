#ifndef ANNULUS_ENGINE_TEXT_NORMALIZER_H_
#define ANNULUS_ENGINE_TEXT_NORMALIZER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/pattern.h"
#include "engine/text/text_stage.h"

namespace annulus {

// The most that normalizers may make of `bytes` bytes of text, in any of their stages.
constexpr uint64_t MaxNormalizedBytes(uint64_t bytes) { return 64 * bytes + 4096; }

// Puts `content` in the place of what `pattern` matches.
std::unique_ptr<TextFilter> MakeReplace(Pattern pattern, std::string content);

// Reads the member `normalizer` of a tokenizer.json: one of those that normalizer.cc lists or a
// Sequence of them. Null gives no filters: the text stays as it is. Normalizers rewrite the
// stretches between added tokens; each makes one stretch of one. Text that grows beyond
// MaxNormalizedBytes is INVALID_ARGUMENT.
absl::StatusOr<TextFilters> ParseNormalizer(const JsonNode& node);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_NORMALIZER_H_
