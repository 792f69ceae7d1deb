#ifndef ANNULUS_ENGINE_TEXT_STAGES_METASPACE_H_
#define ANNULUS_ENGINE_TEXT_STAGES_METASPACE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/text_stage.h"

namespace annulus {

// How `Metaspace`, as pre-tokenizer and as decoder, represents spaces.
struct MetaspaceOptions {
  enum class Prepend { kAlways, kFirst, kNever };

  std::string replacement = "\u2581";  // one character that represents a space
  Prepend prepend = Prepend::kAlways;  // before every stretch, or only before the first
  bool split = true;                   // each replacement starts a piece
};

absl::StatusOr<MetaspaceOptions> ParseMetaspace(const JsonNode& node);

// The pre-tokenizer: replaces spaces, inserts a replacement before a stretch that does not start
// with one, and splits. Holds back the last piece, at most 4 KiB of it.
std::unique_ptr<TextFilter> MakeMetaspace(MetaspaceOptions options);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_METASPACE_H_
