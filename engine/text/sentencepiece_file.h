#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_FILE_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// What a tokenizer.model of the sentencepiece library holds, as far as encoding needs it: the
// fields of its protocol buffer sentencepiece_model.proto, with their defaults.
//
// The bytes are read here and not by the library, which a spoilt file can make end the process: it
// gets what SerializeForEncoding makes of the fields once they are checked.
struct SentencePieceFile {
  enum class Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  enum class Kind { kUnigram = 1, kBpe, kWord, kChar };

  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };

  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  int32_t unk_id = 0;
  int32_t bos_id = 1;  // -1: none
  int32_t eos_id = 2;
  std::string character_map;  // empty: none (CharacterMap)
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// INVALID_ARGUMENT, without the name of the file, for bytes that are no such file.
absl::StatusOr<SentencePieceFile> ParseSentencePieceFile(absl::string_view bytes);

// The bytes of a tokenizer.model that holds `file`.
std::string SerializeSentencePieceFile(const SentencePieceFile& file);

// A file with the pieces and the kind of `file`, whose normalizer leaves texts as they are.
std::string SerializeForEncoding(SentencePieceFile file);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_FILE_H_
