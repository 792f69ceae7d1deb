#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_FILE_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The contents of a sentencepiece tokenizer.model that encoding needs: fields of the protocol
// buffer sentencepiece_model.proto, with their defaults.
//
// We parse the bytes ourselves, since a damaged file can make the library terminate the process.
// The library only gets what SerializeForEncoding makes from the checked fields.
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

// INVALID_ARGUMENT (without the file's name) if the bytes are not such a file.
absl::StatusOr<SentencePieceFile> ParseSentencePieceFile(absl::string_view bytes);

// What a tokenizer of any kind needs: pieces of at most kMostPieceBytes bytes, without zero bytes;
// one unknown piece and a normal one; all 256 bytes if there is byte fallback, otherwise none.
// INVALID_ARGUMENT (without the file's name) if it lacks that.
inline constexpr size_t kMostPieceBytes = 1024;
absl::Status CheckSentencePieces(const SentencePieceFile& file);

// Serializes `file` as a tokenizer.model.
std::string SerializeSentencePieceFile(const SentencePieceFile& file);

// Serializes the pieces and the kind of `file`, with a normalizer that leaves texts unchanged.
std::string SerializeForEncoding(SentencePieceFile file);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_FILE_H_
