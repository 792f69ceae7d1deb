#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_MODEL_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/byte_trie.h"
#include "engine/text/model.h"
#include "engine/text/sentencepiece_file.h"
#include "engine/text/sentencepiece_library.h"

namespace annulus {

// The model of a tokenizer.model: the sentencepiece library divides normalized text into pieces.
//
// The library takes texts whole, with some 240 bytes of memory for each byte. So a stretch of more
// than kWindow bytes is given to it in windows. Where one ends depends on the text alone, never on
// the parts it comes in. The ids are those of the whole stretch, because a window ends
//
//   1. where no piece of the vocabulary bridges its end, as between words; else
//   2. BPE: at the end of a token, `joint`, if the library, given the text from there on, begins
//      with the token that followed in the window before. Merging goes by score, then from the
//      left, and cannot tell tokens that do not merge with their neighbours from a longer text: a
//      sequence is what BPE makes of its text if each two neighbours are what it makes of theirs.
//      If it begins otherwise, the window before is made twice as long, up to kMostWindow; else
//   3. Unigram: at a place that every best division passes. The division of the whole passes the
//      window's end or the start of a piece that bridges it; where the best divisions of the text
//      up to each of these have ends of tokens in common, the last of them is one of the whole's.
//      If they have none, twice the window is tried, up to kMostUnigramWindow. A run whose
//      divisions are equally good can be without such a place for ever; then the last end of a
//      token counts.
//
// The library sums a Unigram's scores in single precision. They start anew with each window, so
// that in a text of more than one, divisions whose scores are equal but for rounding may fall
// otherwise than without windows.
//
// Takes time in proportion to the text, times one more than the number of pieces that bridge one
// place (3 only). Holds back two windows. Immutable and thread-safe.
class SentencePieceModel : public Model {
 public:
  static constexpr size_t kWindow = 16 << 10;  // bytes, of ordinary text
  static constexpr size_t kMostUnigramWindow = 256 << 10;
  static constexpr size_t kMostWindow = 4 << 20;

  // Gives the library the checked fields of `file`, and none of its bytes. INVALID_ARGUMENT for
  // what the library refuses or could not bear, UNIMPLEMENTED for what does not go in windows.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const SentencePieceFile& file,
                                                       const SentencePieceLibrary& library);

  std::unique_ptr<TextStage> NewStage(EncodeState* state) const override;
  int32_t unknown() const override { return unknown_; }
  const char* kind() const override { return is_bpe_ ? "BPE" : "Unigram"; }

 private:
  class Stage;

  // Which places near the end of a window pieces bridge.
  struct Bridges {
    std::optional<size_t> free;  // the last place that none bridges
    size_t last = 0;             // the last place where all pieces that bridge it can be seen
    std::vector<size_t> starts;  // of those that bridge `last`
  };

  SentencePieceModel() = default;
  Bridges FindBridges(absl::string_view window) const;

  std::unique_ptr<SentencePieceLibrary::Processor> processor_;
  ByteTrie pieces_;     // normal and user-defined
  size_t longest_ = 4;  // of them and of characters, in bytes
  bool is_bpe_ = false;
  int32_t unknown_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_MODEL_H_
