#ifndef ANNULUS_ENGINE_TEXT_STAGES_PRE_TOKENIZER_H_
#define ANNULUS_ENGINE_TEXT_STAGES_PRE_TOKENIZER_H_

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/text_stage.h"

namespace annulus {

// Splits normalized text into the pieces that the model encodes independently.
struct PreTokenizers {
  TextFilters filters;
  // Whether the model's alphabet is the 256 bytes instead of characters. Pieces stay plain text
  // here; the representation with one printable character per byte is only used in files.
  bool byte_level = false;
};

// Parses the member `pre_tokenizer` of a tokenizer.json: one of the kinds in pre_tokenizer.cc, a
// Sequence of them, or null. Pre-tokenizers after ByteLevel in a Sequence see each byte as a
// character of the byte alphabet, and may split inside characters of the text. Metaspace may not
// follow ByteLevel.
absl::StatusOr<PreTokenizers> ParsePreTokenizer(const JsonNode& node);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_PRE_TOKENIZER_H_
