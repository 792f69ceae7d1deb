#ifndef ANNULUS_ENGINE_TEXT_PIPELINE_TOKENIZER_H_
#define ANNULUS_ENGINE_TEXT_PIPELINE_TOKENIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/text/models/model.h"
#include "engine/text/models/vocabulary.h"
#include "engine/text/stages/added_tokens.h"
#include "engine/text/stages/decoder.h"
#include "engine/text/stages/post_processor.h"
#include "engine/text/stages/pre_tokenizer.h"
#include "engine/text/stages/text_stage.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// The stages of a tokenizer.json.
struct PipelineStages {
  Vocabulary vocabulary;  // the model's tokens and added tokens
  TextFilters normalizer;
  AddedTokens added_tokens;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<Model> model;
  PostProcessor post_processor;
  Decoder decoder;
  std::optional<int32_t> bos;
  std::vector<int32_t> control_pieces;  // of the model; added_tokens has others
};

// Runs text through the stages
//   raw added tokens | normalizer | normalized added tokens | pre-tokenizer | model,
// then adds the post-processor's ids before and after.
class PipelineTokenizer : public Tokenizer {
 public:
  // INVALID_ARGUMENT if a token cannot be decoded.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(PipelineStages stages);

  std::unique_ptr<StreamingEncoder> NewStream(bool add_special,
                                              const CancelFlag& cancel) const override;
  std::unique_ptr<StreamingEncoder> NewPlainStream(const CancelFlag& cancel) const override;
  void DecodeNext(int32_t id, DecodeState* state, std::string* bytes) const override;
  int32_t vocabulary_size() const override { return stages_.vocabulary.size(); }
  bool HasToken(int32_t id) const override { return stages_.vocabulary.Token(id).has_value(); }
  bool IsSpecial(int32_t id) const override { return stages_.added_tokens.IsSpecial(id); }
  bool IsControl(int32_t id) const override {
    return stages_.added_tokens.IsControl(id) || plain_forms_.contains(id);
  }
  std::optional<int32_t> bos() const override { return stages_.bos; }
  const char* kind() const override { return stages_.model->kind(); }

 private:
  class Stream;
  using PlainForms = absl::flat_hash_map<int32_t, std::vector<int32_t>>;

  explicit PipelineTokenizer(PipelineStages stages) : stages_(std::move(stages)) {}

  absl::Status DecodeVocabulary();
  void FindPlainForms();
  std::vector<int32_t> EncodeParts(const std::vector<absl::string_view>& parts) const;
  absl::StatusOr<std::string> DecodeToken(int32_t id, bool is_first) const;

  PipelineStages stages_;
  std::string token_bytes_;            // of all tokens, in order of id
  std::vector<size_t> token_offsets_;  // token i is at [offsets[i], offsets[i + 1])
  // Control tokens that the model might produce from plain text, and the ids that replace them:
  // those of the token's first character and of the rest; empty if the model has no tokens for
  // these.
  PlainForms plain_forms_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_PIPELINE_TOKENIZER_H_
