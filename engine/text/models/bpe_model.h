#ifndef ANNULUS_ENGINE_TEXT_MODELS_BPE_MODEL_H_
#define ANNULUS_ENGINE_TEXT_MODELS_BPE_MODEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_node.h"
#include "engine/text/models/merge_table.h"
#include "engine/text/models/model.h"
#include "engine/text/models/vocabulary.h"

namespace annulus {

// Byte pair encoding of one piece of text. It starts from units: bytes (byte-level, as in GPT-2,
// Llama 3, Qwen) or characters (as in Llama 2). A unit without a token becomes the first of these
// that applies: the tokens <0xNN> of its bytes (`byte_fallback`); the unknown token (a single one
// for adjacent units with `fuse_unk`); nothing, as in the package `tokenizers`. If a byte-level
// model has no token for any byte, such text is INVALID_ARGUMENT instead of nothing. Immutable and
// thread-safe.
class BpeModel : public Model {
 public:
  // Parses the member `model` of a tokenizer.json and adds its tokens to `vocabulary`.
  static absl::StatusOr<std::unique_ptr<Model>> Parse(const JsonNode& node, bool byte_level,
                                                      Vocabulary* vocabulary);

  // Takes O(n log n). Holds back a text's end that later text could still change: as much as the
  // longest whole-piece token, and what merges could join to it, at most kMaxUncutBytes units.
  std::unique_ptr<TextStage> NewStage(EncodeState* state) const override;
  int32_t unknown() const override { return unknown_.id; }
  const char* kind() const override { return byte_level_ ? "byte-level BPE" : "BPE"; }

 private:
  static constexpr int32_t kNoToken = -1;
  static constexpr size_t kSmall = 256;  // smaller units are looked up in an array

  // A token as the model sees it, with the first and last unit of its text.
  struct Symbol {
    int32_t id = kNoToken;
    char32_t first = 0;
    char32_t last = 0;
  };
  class Stage;

  BpeModel() { small_units_.fill(kNoToken); }

  absl::Status ParseOptions(const JsonNode& node);
  absl::Status ParseVocabulary(const JsonNode& node, Vocabulary* vocabulary);
  absl::Status ParseMerges(const JsonNode& node, const Vocabulary& vocabulary);
  absl::Status AddMerge(const JsonNode& node, uint32_t rank, absl::string_view left,
                        absl::string_view right, const Vocabulary& vocabulary);
  void FindByteTokens(const Vocabulary& vocabulary);
  absl::Status FindWholeTokens(const Vocabulary& vocabulary);
  absl::Status CheckByteTokens(const JsonNode& node) const;

  std::optional<std::string> PieceText(absl::string_view token) const;
  Symbol MakeSymbol(absl::string_view token, int32_t id) const;
  void AddUnit(absl::string_view text, int32_t id);
  char32_t NextUnit(absl::string_view piece, size_t* position) const;
  int32_t FindUnit(char32_t unit) const;
  bool AllBytesHaveTokens(absl::string_view bytes) const;

  bool byte_level_ = false;
  bool byte_fallback_ = false;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
  bool lacks_bytes_ = false;  // byte-level, without a token for any byte or for unknown text
  std::string unk_token_;     // empty: none
  Symbol unknown_;
  std::array<int32_t, kSmall> small_units_;
  absl::flat_hash_map<char32_t, int32_t> large_units_;
  std::array<Symbol, 256> byte_tokens_;  // <0xNN>
  // Pieces that become a single token. With `ignore_merges` all tokens; otherwise, if pieces are
  // words, tokens that merging produces for their own text, so that most words need no merging.
  absl::flat_hash_map<std::string, int32_t> whole_;
  size_t longest_whole_ = 0;  // in bytes
  MergeTable merges_;
  JoinTable joins_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_MODELS_BPE_MODEL_H_
