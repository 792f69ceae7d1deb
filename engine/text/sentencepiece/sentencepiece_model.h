#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_MODEL_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_MODEL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/models/byte_trie.h"
#include "engine/text/models/model.h"
#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "engine/text/sentencepiece/sentencepiece_library.h"

namespace annulus {

// The BPE model of a tokenizer.model: the sentencepiece library divides normalized text into
// pieces.
//
// The library takes texts whole and needs about 240 bytes of memory per byte. So a stretch of more
// than kWindow bytes is passed to it in windows. Where a window ends depends only on the text, not
// on the parts in which it arrives. The ids equal those of the whole stretch, because a window ends
// where no piece of the vocabulary bridges its end, for example between words. If there is no such
// place near its end, the window ends at the end of a token, and the next one starts there. That
// one must begin with the token that followed in this one; otherwise this window is encoded again
// at twice the size, up to kMostWindow, and then INVALID_ARGUMENT. (Merging goes by score, then
// from the left. So a sequence of tokens is what BPE makes of a text if every two neighbours are
// what it makes of their own text.)
//
// Takes time proportional to the text. Holds back two windows. Immutable and thread-safe.
class SentencePieceModel : public Model {
 public:
  static constexpr size_t kWindow = 16 << 10;  // bytes, for ordinary text
  static constexpr size_t kMostWindow = 4 << 20;

  // Passes the checked fields of `file`, whose kind must be kBpe, to the library, but none of its
  // bytes. INVALID_ARGUMENT: the library would refuse it or could not handle it. UNIMPLEMENTED:
  // windows cannot be used.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const SentencePieceFile& file,
                                                       const SentencePieceLibrary& library);

  std::unique_ptr<TextStage> NewStage(EncodeState* state) const override;
  int32_t unknown() const override { return unknown_; }
  const char* kind() const override { return "BPE"; }

 private:
  class Stage;

  SentencePieceModel() = default;
  // The last place near the end of a window that no piece bridges.
  std::optional<size_t> FindFreePlace(absl::string_view window) const;

  std::unique_ptr<SentencePieceLibrary::Processor> processor_;
  ByteTrie pieces_;     // normal and user-defined
  size_t longest_ = 4;  // longest piece or character, in bytes
  int32_t unknown_ = 0;
  bool byte_fallback_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_MODEL_H_
