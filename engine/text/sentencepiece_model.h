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
// The library takes texts whole and needs about 240 bytes of memory per byte. So a stretch of more
// than kWindow bytes is passed to it in windows. Where a window ends depends only on the text, not
// on the parts in which it arrives. The ids equal those of the whole stretch, because a window ends
// where no piece of the vocabulary bridges its end, for example between words. If there is no such
// place near its end:
//
// - BPE: the window ends at the end of a token, and the next one starts there. That one must begin
//   with the token that followed in this one; otherwise this window is encoded again at twice the
//   size, up to kMostWindow, and then INVALID_ARGUMENT. (Merging goes by score, then from the left.
//   So a sequence of tokens is what BPE makes of a text if every two neighbours are what it makes
//   of their own text.)
// - Unigram: the window ends where every best division of the stretch has a token end. Such a
//   division ends a token either at the last place of the window or where a piece starts that
//   bridges that place. So the text up to each of these is divided; a token end that all these
//   divisions share is one of the whole's, and the last one is taken. If none is in the window's
//   second half, a window of twice the size is tried, up to kMostUnigramWindow. A run with equally
//   good divisions may never have one: then the last token end is taken, and the ids may differ.
//
// The library sums a Unigram's scores in single precision. Sums restart with each window, so in a
// text of several windows, divisions with scores that differ only by rounding may be decided
// differently than without windows.
//
// Takes time proportional to the text; for Unigram, times one more than the number of pieces that
// bridge one place. Holds back two windows. Immutable and thread-safe.
class SentencePieceModel : public Model {
 public:
  static constexpr size_t kWindow = 16 << 10;  // bytes, for ordinary text
  static constexpr size_t kMostUnigramWindow = 256 << 10;
  static constexpr size_t kMostWindow = 4 << 20;

  // Passes the checked fields of `file` to the library, but none of its bytes. INVALID_ARGUMENT:
  // the library would refuse it or could not handle it. UNIMPLEMENTED: windows cannot be used.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const SentencePieceFile& file,
                                                       const SentencePieceLibrary& library);

  std::unique_ptr<TextStage> NewStage(EncodeState* state) const override;
  int32_t unknown() const override { return unknown_; }
  const char* kind() const override { return is_bpe_ ? "BPE" : "Unigram"; }

 private:
  class Stage;

  // Which positions near the end of a window are bridged by pieces.
  struct Bridges {
    std::optional<size_t> free;  // the last position that no piece bridges
    size_t last = 0;             // the last position for which all bridging pieces are visible
    std::vector<size_t> starts;  // starts of the pieces that bridge `last`
  };

  SentencePieceModel() = default;
  Bridges FindBridges(absl::string_view window) const;

  std::unique_ptr<SentencePieceLibrary::Processor> processor_;
  ByteTrie pieces_;     // normal and user-defined
  size_t longest_ = 4;  // longest piece or character, in bytes
  bool is_bpe_ = false;
  int32_t unknown_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_MODEL_H_
