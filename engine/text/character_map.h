#ifndef ANNULUS_ENGINE_TEXT_CHARACTER_MAP_H_
#define ANNULUS_ENGINE_TEXT_CHARACTER_MAP_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The character map of a sentencepiece model: texts and what they are replaced by. Its bytes are a
// 32-bit size, a double array trie of that many bytes (Aoe 1989, as in darts-clone), and the
// replacements, each ended by a zero byte; all little endian. Looking up is safe in any bytes that
// Parse takes. Immutable.
class CharacterMap {
 public:
  // Nothing for bytes that are no such map.
  static std::optional<CharacterMap> Parse(absl::string_view bytes);

  // What the shortest prefix of `text` that the map has is replaced by.
  std::optional<absl::string_view> FindShortest(absl::string_view text) const;

  struct Match {
    size_t length = 0;  // of the prefix; 0: none
    absl::string_view replacement;
    bool may_go_on = false;  // text still to come could make it longer
  };
  // The longest prefix of `text`, whole characters of at most kMostKeyBytes, that the map has.
  static constexpr size_t kMostKeyBytes = 256;
  Match FindLongest(absl::string_view text) const;

 private:
  // Calls `found` with the length and the replacement of each prefix of `text`, shortest first,
  // until it is false. True where the trie has more behind the whole text.
  bool ForEachPrefix(absl::string_view text,
                     absl::FunctionRef<bool(size_t, absl::string_view)> found) const;
  std::optional<absl::string_view> Replacement(size_t begin) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_CHARACTER_MAP_H_
