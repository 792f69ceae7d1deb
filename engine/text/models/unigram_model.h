#ifndef ANNULUS_ENGINE_TEXT_MODELS_UNIGRAM_MODEL_H_
#define ANNULUS_ENGINE_TEXT_MODELS_UNIGRAM_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_node.h"
#include "engine/text/models/byte_trie.h"
#include "engine/text/models/model.h"
#include "engine/text/models/vocabulary.h"
#include "engine/text/sentencepiece/sentencepiece_file.h"

namespace annulus {

// The unigram language model (Kudo 2018, "Subword Regularization", section 3.2): divides a piece
// into the tokens with the largest sum of log probabilities, found by Viterbi's algorithm. A
// character without a token counts as unknown, with a score 10 below the lowest. A run of unknown
// characters becomes the first of these that exists: a token with exactly that text; the tokens
// <0xNN> of its bytes (`byte_fallback`); one unknown token. Sums use double precision from the
// start of the piece, like the `tokenizers` package, so that ties are decided the same way. (The
// sentencepiece library uses single precision. Of runs of one character many divisions have the
// same sum; there it is rounding that decides.)
//
// Encoding takes time proportional to the text and the longest token (at most kMaxTokenBytes).
// Holds back the longest token, the text since the last position that no token bridges, and a run
// of unknown characters, each at most kMaxUncutBytes. Immutable and thread-safe.
class UnigramModel : public Model {
 public:
  static constexpr size_t kMaxTokenBytes = 1024;

  // Parses the member `model` of a tokenizer.json and adds its tokens to `vocabulary`.
  static absl::StatusOr<std::unique_ptr<Model>> Parse(const JsonNode& node, Vocabulary* vocabulary);

  // The model of a tokenizer.model: normal pieces, and user-defined ones, which have a better score
  // than any other pieces with the same text. INVALID_ARGUMENT: see CheckSentencePieces.
  static absl::StatusOr<std::unique_ptr<Model>> Create(const SentencePieceFile& file);

  std::unique_ptr<TextStage> NewStage(EncodeState* state) const override;
  int32_t unknown() const override { return unknown_; }
  const char* kind() const override { return "Unigram"; }

 private:
  static constexpr int32_t kNoToken = -1;
  class Stage;

  absl::Status ParseTokens(const JsonNode& node, Vocabulary* vocabulary);
  void FindByteTokens(const Vocabulary& vocabulary);
  void AppendUnknown(absl::string_view run, std::vector<int32_t>* ids) const;

  ByteTrie trie_;
  std::vector<double> scores_;  // [id]
  double unknown_score_ = 0;
  int32_t unknown_ = kNoToken;
  size_t longest_ = 1;  // longest token, in bytes
  bool byte_fallback_ = false;
  std::array<int32_t, 256> byte_tokens_{};  // <0xNN>
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODELS_UNIGRAM_MODEL_H_
