#ifndef ANNULUS_ENGINE_TEXT_TOKENIZER_H_
#define ANNULUS_ENGINE_TEXT_TOKENIZER_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/work_meter.h"
#include "engine/text/decoder.h"
#include "engine/text/streaming_encoder.h"

namespace annulus {

inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

// Text to token ids and back. Immutable: every method is thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of `text`, which must be UTF-8 (else INVALID_ARGUMENT with the offset of the first bad
  // byte) of at most kMaxTextBytes. The contents of special tokens are recognised in the text.
  // `add_special` adds what the model expects around a text, for example a beginning-of-text id.
  // Time is O(n log n) in the bytes of the text; stack use does not depend on it. CANCELLED soon
  // after `cancel` is set.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool add_special,
                                              const CancelFlag& cancel = CancelFlag::Never()) const;

  // The ids of a text that others wrote and that must not steer the model: as Encode without
  // `add_special`, but the contents of control tokens (see AddedTokens) are text like any other. No
  // id of a control token comes out, except the one for text without tokens.
  absl::StatusOr<std::vector<int32_t>> EncodePlain(
      absl::string_view text, const CancelFlag& cancel = CancelFlag::Never()) const;

  // Start to encode a text that comes in parts, to the ids of Encode and EncodePlain; its length
  // has no limit. The tokenizer and `cancel` must outlive the stream.
  virtual std::unique_ptr<StreamingEncoder> NewStream(
      bool add_special, const CancelFlag& cancel = CancelFlag::Never()) const = 0;
  virtual std::unique_ptr<StreamingEncoder> NewPlainStream(
      const CancelFlag& cancel = CancelFlag::Never()) const = 0;

  // The bytes that `ids` stand for; they need not be UTF-8 when a model wrote the ids.
  // INVALID_ARGUMENT for an id without a token, with the id, its place and the range.
  // `skip_special` leaves special tokens out. CANCELLED soon after `cancel` is set.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool skip_special,
                                     const CancelFlag& cancel = CancelFlag::Never()) const;

  // Decode in steps: appends what `id` adds to a text of which `state` tells what came before; a
  // text starts with a fresh state. An id without a token adds nothing.
  virtual void DecodeNext(int32_t id, DecodeState* state, std::string* bytes) const = 0;

  // One more than the largest id. Smaller ids may be without a token.
  virtual int32_t vocabulary_size() const = 0;
  virtual bool HasToken(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // Whether the id is a control token's (see AddedTokens): EncodePlain gives none.
  virtual bool IsControl(int32_t id) const = 0;

  // The beginning-of-text id, if the files name one.
  virtual std::optional<int32_t> bos() const = 0;

  // What it is, for people: "byte-level BPE", "BPE", "bytes".
  virtual const char* kind() const = 0;

  // OK, or why there is no text, only ids: see MakeMissingTokenizer.
  virtual absl::Status usable() const { return absl::OkStatus(); }

 private:
  absl::StatusOr<std::vector<int32_t>> EncodeWith(StreamingEncoder& stream,
                                                  absl::string_view text) const;
};

// Reads tokenizer.json of a Hugging Face model directory, or where there is none tokenizer.model,
// and, when it is there, tokenizer_config.json for the beginning and end ids to add where
// tokenizer.json does not say.
//
// NOT_FOUND without either file; INVALID_ARGUMENT for a file that is malformed or contradicts
// itself; UNIMPLEMENTED for a kind that is not supported. Messages name the file, the key, the
// value and what is allowed.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::filesystem::path& model_directory);

// The same from the text of a tokenizer.json alone. `file_name` is used in messages only.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             absl::string_view file_name);

// The same with what the text of a tokenizer_config.json adds ("{}" for nothing).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             absl::string_view file_name,
                                                             absl::string_view config,
                                                             absl::string_view config_name);

// The same from the bytes of a tokenizer.model and the text of a tokenizer_config.json ("{}" for
// none); see ParseSentencePieceStages for what is supported.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerModel(absl::string_view bytes,
                                                              absl::string_view file_name,
                                                              absl::string_view config,
                                                              absl::string_view config_name);

// Stands for the tokenizer of a model whose directory has none. Such a model is served by token
// ids: encoding and decoding are UNIMPLEMENTED with what is missing, and DecodeNext adds no text.
std::unique_ptr<Tokenizer> MakeMissingTokenizer();

// One id per byte, 0..255, and 256 for the end of the text (special, written "<|endoftext|>"; never
// recognised in text). Adds no special tokens.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

inline constexpr int32_t kByteTokenizerEndOfText = 256;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_TOKENIZER_H_
