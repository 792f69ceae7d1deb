#ifndef ANNULUS_ENGINE_TEXT_STAGES_POST_PROCESSOR_H_
#define ANNULUS_ENGINE_TEXT_STAGES_POST_PROCESSOR_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/models/vocabulary.h"

namespace annulus {

// The ids that encoding with special tokens adds before and after those of the text.
struct PostProcessor {
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
  bool has_template = false;  // the file specifies what to add, even if nothing
};

// Parses the member `post_processor` of a tokenizer.json: TemplateProcessing (its template for a
// single text), ByteLevel (which does not change ids), a Sequence of them, or null. `vocabulary`
// must be complete.
absl::StatusOr<PostProcessor> ParsePostProcessor(const JsonNode& node,
                                                 const Vocabulary& vocabulary);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_POST_PROCESSOR_H_
