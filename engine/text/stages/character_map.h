#ifndef ANNULUS_ENGINE_TEXT_STAGES_CHARACTER_MAP_H_
#define ANNULUS_ENGINE_TEXT_STAGES_CHARACTER_MAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The character map of a sentencepiece model: texts and their replacements. Serialized as a 32-bit
// size, a double array trie of that many bytes (Aoe 1989, as in darts-clone), and the replacements,
// each terminated by a zero byte; all little-endian. Lookups are safe for any bytes that Parse
// accepts. Immutable.
class CharacterMap {
 public:
  // Returns nothing if the bytes are not such a map.
  static std::optional<CharacterMap> Parse(absl::string_view bytes);

  // The replacement of the shortest prefix of `text` in the map.
  std::optional<absl::string_view> FindShortest(absl::string_view text) const;

  struct Match {
    size_t length = 0;  // length of the prefix; 0: none
    absl::string_view replacement;
    bool may_go_on = false;  // further text could make the match longer
  };
  // The longest prefix of `text` in the map, in whole characters and at most kMostKeyBytes.
  static constexpr size_t kMostKeyBytes = 256;
  Match FindLongest(absl::string_view text) const;

 private:
  // Calls `found` with length and replacement of each prefix of `text` in the map, shortest first,
  // until it returns false. Returns true if the trie continues beyond the whole text.
  bool ForEachPrefix(absl::string_view text,
                     absl::FunctionRef<bool(size_t, absl::string_view)> found) const;
  std::optional<absl::string_view> Replacement(size_t begin) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_CHARACTER_MAP_H_
