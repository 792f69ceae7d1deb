#ifndef ANNULUS_ENGINE_TEXT_PRE_TOKENIZER_H_
#define ANNULUS_ENGINE_TEXT_PRE_TOKENIZER_H_

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/text_stage.h"

namespace annulus {

// What cuts normalized text into the pieces that the model encodes one by one.
struct PreTokenizers {
  TextFilters filters;
  // The model's alphabet is the 256 bytes rather than characters. Pieces stay plain text here; the
  // detour through one printable character per byte is made only in the files.
  bool byte_level = false;
};

// Reads the member `pre_tokenizer` of a tokenizer.json: one of those that pre_tokenizer.cc lists,
// or a Sequence of them; or null. What follows ByteLevel in a Sequence sees each byte as a
// character of the byte alphabet, and may cut inside characters of the text; Metaspace may not
// follow it.
absl::StatusOr<PreTokenizers> ParsePreTokenizer(const JsonNode& node);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_PRE_TOKENIZER_H_
