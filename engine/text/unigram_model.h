#ifndef ANNULUS_ENGINE_TEXT_UNIGRAM_MODEL_H_
#define ANNULUS_ENGINE_TEXT_UNIGRAM_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_node.h"
#include "engine/text/byte_trie.h"
#include "engine/text/model.h"
#include "engine/text/vocabulary.h"

namespace annulus {

// The unigram language model (Kudo 2018, "Subword Regularization", section 3.2): a piece is divided
// into the tokens whose log probabilities have the largest sum, found by Viterbi's algorithm. A
// character that is no token counts as an unknown one with a score 10 below the lowest. A run of
// unknown characters becomes, in this order: the token of just that text, the tokens <0xNN> of its
// bytes (`byte_fallback`), one unknown token. Sums are formed in double precision from the start of
// the piece, as the `tokenizers` package forms them, so that ties fall alike.
//
// Encoding takes time in proportion to the text and the longest token, at most kMaxTokenBytes. Held
// back are the longest token, the text since the last place that no token bridges, and a run of
// unknown characters, each at most kMaxUncutBytes. Immutable and thread-safe.
class UnigramModel : public Model {
 public:
  static constexpr size_t kMaxTokenBytes = 1024;

  // Reads the member `model` of a tokenizer.json and puts its tokens into `vocabulary`.
  static absl::StatusOr<std::unique_ptr<Model>> Parse(const JsonNode& node, Vocabulary* vocabulary);

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
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  int32_t unknown_ = kNoToken;
  size_t longest_ = 1;  // token, in bytes
  bool byte_fallback_ = false;
  std::array<int32_t, 256> byte_tokens_{};  // <0xNN>
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_UNIGRAM_MODEL_H_
