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
#include "engine/text/stages/decoder.h"
#include "engine/text/streaming_encoder.h"

namespace annulus {

inline constexpr size_t kMaxTextBytes = size_t{1} << 30;

// Converts between text and token ids. Immutable: every method is thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Returns the ids of `text`, UTF-8 of at most kMaxTextBytes; otherwise INVALID_ARGUMENT (for bad
  // UTF-8 with the offset of the first bad byte). Special tokens spelled out in the text are
  // recognised. `add_special` adds what the model expects around a text, for example a
  // beginning-of-text id. Takes O(n log n) time; stack use does not depend on the text. CANCELLED
  // soon after `cancel` is set.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool add_special,
                                              const CancelFlag& cancel = CancelFlag::Never()) const;

  // Returns the ids of a text that others wrote and that must not steer the model: like Encode
  // without `add_special`, but control tokens (see AddedTokens) spelled out in the text are
  // ordinary text. The result contains no id of a control token, except that of the unknown token,
  // which stands for text that the vocabulary cannot spell.
  absl::StatusOr<std::vector<int32_t>> EncodePlain(
      absl::string_view text, const CancelFlag& cancel = CancelFlag::Never()) const;

  // Start encoding a text given in parts, with the same ids as Encode and EncodePlain and no limit
  // on its length. The tokenizer and `cancel` must outlive the stream.
  virtual std::unique_ptr<StreamingEncoder> NewStream(
      bool add_special, const CancelFlag& cancel = CancelFlag::Never()) const = 0;
  virtual std::unique_ptr<StreamingEncoder> NewPlainStream(
      const CancelFlag& cancel = CancelFlag::Never()) const = 0;

  // Returns the bytes of `ids`; ids written by a model need not form valid UTF-8. `skip_special`
  // leaves out special tokens. INVALID_ARGUMENT for an id without a token, with the id, its index
  // and the range. CANCELLED soon after `cancel` is set.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool skip_special,
                                     const CancelFlag& cancel = CancelFlag::Never()) const;

  // Decodes incrementally: appends what `id` adds to the text decoded so far, which `state`
  // describes. Start each text with a new state. Ids without a token add nothing.
  virtual void DecodeNext(int32_t id, DecodeState* state, std::string* bytes) const = 0;

  // The largest id plus one. Smaller ids may have no token.
  virtual int32_t vocabulary_size() const = 0;
  virtual bool HasToken(int32_t id) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;
  // Whether the id belongs to a control token: see AddedTokens and EncodePlain.
  virtual bool IsControl(int32_t id) const = 0;

  // The beginning-of-text id, if the files name one.
  virtual std::optional<int32_t> bos() const = 0;

  // The kind of tokenizer, for people: "byte-level BPE", "BPE", "bytes".
  virtual const char* kind() const = 0;

  // OK, or why only ids and no text can be used: see MakeMissingTokenizer.
  virtual absl::Status usable() const { return absl::OkStatus(); }

 private:
  absl::StatusOr<std::vector<int32_t>> EncodeWith(StreamingEncoder& stream,
                                                  absl::string_view text) const;
};

// Loads tokenizer.json of a Hugging Face model directory or, if absent, tokenizer.model. If
// tokenizer_config.json exists and tokenizer.json does not specify which beginning and end ids to
// add, takes them from there.
//
// NOT_FOUND if both files are absent; INVALID_ARGUMENT if a file is malformed or contradictory;
// UNIMPLEMENTED for an unsupported kind. Messages name the file, the key, the value and what is
// allowed.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::filesystem::path& model_directory);

// The same for a caller that has read tokenizer_config.json: `config` is what ReadTokenizerConfig
// returned.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::filesystem::path& model_directory, absl::string_view config);

// The text of a model directory's tokenizer_config.json, "{}" if it is absent. The tokenizer and
// TemplateDirectory take their settings from it. Errors of ReadTextFile.
absl::StatusOr<std::string> ReadTokenizerConfig(const std::filesystem::path& model_directory);

// Loads the text of a tokenizer.json alone. `file_name` is only used in messages.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             absl::string_view file_name);

// The same, together with the text of a tokenizer_config.json ("{}" for none).
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerJson(absl::string_view json,
                                                             absl::string_view file_name,
                                                             absl::string_view config,
                                                             absl::string_view config_name);

// Loads the bytes of a tokenizer.model and the text of a tokenizer_config.json ("{}" for none). For
// supported features see ParseSentencePieceStages.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizerModel(absl::string_view bytes,
                                                              absl::string_view file_name,
                                                              absl::string_view config,
                                                              absl::string_view config_name);

// A stand-in for models whose directory has no tokenizer. Such a model is served by token ids:
// encoding and decoding return UNIMPLEMENTED and say what is missing; DecodeNext adds no text.
std::unique_ptr<Tokenizer> MakeMissingTokenizer();

// One id per byte, 0..255, and 256 for the end of the text (special, written "<|endoftext|>", never
// recognised in text). Adds no special tokens.
std::unique_ptr<Tokenizer> MakeByteTokenizer();

inline constexpr int32_t kByteTokenizerEndOfText = 256;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_TOKENIZER_H_
