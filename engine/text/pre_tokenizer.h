#ifndef ANNULUS_ENGINE_TEXT_PRE_TOKENIZER_H_
#define ANNULUS_ENGINE_TEXT_PRE_TOKENIZER_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/json_node.h"

namespace annulus {

// Cuts normalized text into the pieces that the model encodes one by one. Immutable and
// thread-safe.
class PreTokenizer {
 public:
  using Sink = absl::FunctionRef<absl::Status(absl::string_view piece)>;

  virtual ~PreTokenizer() = default;

  // Calls `sink` for the pieces of `text`, in order, and stops at an error. `text` is valid UTF-8
  // and not empty; so is each piece, which lives only during the call.
  virtual absl::Status Split(absl::string_view text, Sink sink) const = 0;
};

struct PreTokenizers {
  std::unique_ptr<PreTokenizer> splitter;  // null: the text is one piece
  // The model's alphabet is the 256 bytes rather than characters. Pieces stay plain text here; the
  // detour through one printable character per byte is made only in the files.
  bool byte_level = false;
};

// Reads the member `pre_tokenizer` of a tokenizer.json: Split, ByteLevel (which must be the last)
// or a Sequence of them; or null.
absl::StatusOr<PreTokenizers> ParsePreTokenizer(const JsonNode& node);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_PRE_TOKENIZER_H_
