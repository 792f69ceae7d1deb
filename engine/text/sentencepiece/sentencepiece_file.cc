#include "engine/text/sentencepiece/sentencepiece_file.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/text/models/vocabulary.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("not a sentencepiece model: ", what));
}

// One field of a message in protobuf's wire format (protobuf.dev, "Encoding").
struct Field {
  uint64_t number = 0;
  uint64_t value = 0;       // of a varint or a fixed field
  absl::string_view bytes;  // of a field with a length
};

class MessageReader {
 public:
  explicit MessageReader(absl::string_view bytes) : rest_(bytes) {}

  bool AtEnd() const { return rest_.empty(); }

  absl::StatusOr<Field> Next() {
    Field field;
    ANNULUS_ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    field.number = tag >> 3;
    switch (tag & 7) {
      case 0: {
        ANNULUS_ASSIGN_OR_RETURN(field.value, Varint());
        return field;
      }
      case 1: {
        ANNULUS_ASSIGN_OR_RETURN(field.value, Fixed(8));
        return field;
      }
      case 2: {
        ANNULUS_ASSIGN_OR_RETURN(const uint64_t length, Varint());
        if (length > rest_.size()) return Malformed("a field goes beyond the end of the file");
        field.bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
        return field;
      }
      case 5: {
        ANNULUS_ASSIGN_OR_RETURN(field.value, Fixed(4));
        return field;
      }
      default:
        return Malformed(absl::StrCat("a field has the wire type ", tag & 7));
    }
  }

 private:
  absl::StatusOr<uint64_t> Varint() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return Malformed("the file ends inside a number");
      const auto byte = static_cast<uint8_t>(rest_.front());
      rest_.remove_prefix(1);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    return Malformed("a number has more than 10 bytes");
  }

  absl::StatusOr<uint64_t> Fixed(size_t size) {
    if (rest_.size() < size) return Malformed("the file ends inside a number");
    uint64_t value = 0;
    for (size_t i = 0; i < size; ++i) {
      value |= uint64_t{static_cast<uint8_t>(rest_[i])} << (8 * i);
    }
    rest_.remove_prefix(size);
    return value;
  }

  absl::string_view rest_;
};

absl::Status ForEachField(absl::string_view message,
                          absl::FunctionRef<absl::Status(const Field&)> each) {
  for (MessageReader reader(message); !reader.AtEnd();) {
    ANNULUS_ASSIGN_OR_RETURN(const Field field, reader.Next());
    ANNULUS_RETURN_IF_ERROR(each(field));
  }
  return absl::OkStatus();
}

absl::Status ReadPiece(absl::string_view message, SentencePieceFile* file) {
  if (file->pieces.size() >= static_cast<size_t>(Vocabulary::kMaxSize)) {
    return Malformed(absl::StrCat("more than ", Vocabulary::kMaxSize, " pieces"));
  }
  SentencePieceFile::Piece piece;
  ANNULUS_RETURN_IF_ERROR(ForEachField(message, [&](const Field& field) -> absl::Status {
    if (field.number == 1) piece.text = std::string(field.bytes);
    if (field.number == 2) {
      const auto bits = static_cast<uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, sizeof(bits));
    }
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6) {
        return Malformed(absl::StrCat("a piece has the type ", field.value));
      }
      piece.type = static_cast<SentencePieceFile::Type>(field.value);
    }
    return absl::OkStatus();
  }));
  const size_t id = file->pieces.size();
  if (FirstInvalidUtf8(piece.text).has_value()) {
    return Malformed(absl::StrCat("piece ", id, " is not UTF-8"));
  }
  if (!std::isfinite(piece.score)) {
    return Malformed(absl::StrCat("the score of piece ", id, " is not finite"));
  }
  file->pieces.push_back(std::move(piece));
  return absl::OkStatus();
}

absl::Status ReadTrainer(absl::string_view message, SentencePieceFile* file) {
  return ForEachField(message, [&](const Field& field) -> absl::Status {
    switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4) {
          return Malformed(absl::StrCat("model_type is ", field.value));
        }
        file->kind = static_cast<SentencePieceFile::Kind>(field.value);
        break;
      case 24:
        file->whitespace_as_suffix = field.value != 0;
        break;
      case 35:
        file->byte_fallback = field.value != 0;
        break;
      case 40:
        file->unk_id = static_cast<int32_t>(field.value);
        break;
      case 41:
        file->bos_id = static_cast<int32_t>(field.value);
        break;
      case 42:
        file->eos_id = static_cast<int32_t>(field.value);
        break;
      default:
        break;
    }
    return absl::OkStatus();
  });
}

absl::Status ReadNormalizer(absl::string_view message, SentencePieceFile* file) {
  return ForEachField(message, [&](const Field& field) {
    if (field.number == 2) file->character_map = std::string(field.bytes);
    if (field.number == 3) file->add_dummy_prefix = field.value != 0;
    if (field.number == 4) file->remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) file->escape_whitespaces = field.value != 0;
    return absl::OkStatus();
  });
}

// "<0x41>"
bool IsByteText(absl::string_view text) {
  const auto is_digit = [](char c) { return absl::ascii_isdigit(c) || (c >= 'A' && c <= 'F'); };
  return absl::ConsumePrefix(&text, "<0x") && absl::ConsumeSuffix(&text, ">") && text.size() == 2 &&
         is_digit(text[0]) && is_digit(text[1]);
}

void AppendVarint(uint64_t value, std::string* bytes) {
  for (; value >= 0x80; value >>= 7) bytes->push_back(static_cast<char>(value | 0x80));
  bytes->push_back(static_cast<char>(value));
}

void AppendNumber(uint64_t field, uint64_t value, std::string* bytes) {
  AppendVarint(field << 3, bytes);
  AppendVarint(value, bytes);
}

void AppendBytes(uint64_t field, absl::string_view value, std::string* bytes) {
  AppendVarint(field << 3 | 2, bytes);
  AppendVarint(value.size(), bytes);
  bytes->append(value.data(), value.size());
}

void AppendFloat(uint64_t field, float value, std::string* bytes) {
  AppendVarint(field << 3 | 5, bytes);
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  for (int shift = 0; shift < 32; shift += 8) bytes->push_back(static_cast<char>(bits >> shift));
}

}  // namespace

absl::StatusOr<SentencePieceFile> ParseSentencePieceFile(absl::string_view bytes) {
  SentencePieceFile file;
  ANNULUS_RETURN_IF_ERROR(ForEachField(bytes, [&](const Field& field) {
    if (field.number == 1) return ReadPiece(field.bytes, &file);
    if (field.number == 2) return ReadTrainer(field.bytes, &file);
    if (field.number == 3) return ReadNormalizer(field.bytes, &file);
    return absl::OkStatus();
  }));
  if (file.pieces.empty()) return Malformed("it has no pieces");
  return file;
}

absl::Status CheckSentencePieces(const SentencePieceFile& file) {
  using Type = SentencePieceFile::Type;
  std::optional<size_t> unknown;
  bool any_normal = false;
  std::set<absl::string_view> bytes;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePieceFile::Piece& piece = file.pieces[id];
    const auto invalid = [&](absl::string_view what) {
      return absl::InvalidArgumentError(absl::StrCat("piece ", id, " ", what));
    };
    if (piece.text.size() > kMostPieceBytes) {
      return invalid(absl::StrCat("has ", piece.text.size(), " bytes; at most ", kMostPieceBytes));
    }
    if (absl::StrContains(piece.text, '\0')) return invalid("has a zero byte");
    any_normal |= piece.type == Type::kNormal;
    if (piece.type == Type::kByte) {
      if (!file.byte_fallback) return invalid("is a byte, but `byte_fallback` is false");
      if (!IsByteText(piece.text)) return invalid("is a byte, but not <0x00> to <0xFF>");
      bytes.insert(piece.text);
    }
    if (piece.type != Type::kUnknown) continue;
    if (unknown.has_value()) return invalid(absl::StrCat("is unknown, as ", *unknown, " is"));
    unknown = id;
  }
  if (!any_normal) {
    return absl::InvalidArgumentError(
        "the vocabulary has no piece of type NORMAL; at least one is needed");
  }
  if (!unknown.has_value()) {
    return absl::InvalidArgumentError("the vocabulary has no piece of type UNKNOWN; one is needed");
  }
  if (file.byte_fallback && bytes.size() != 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("byte fallback needs 256 byte pieces, but there are ", bytes.size()));
  }
  return absl::OkStatus();
}

std::string SerializeSentencePieceFile(const SentencePieceFile& file) {
  std::string bytes;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    std::string message;
    AppendBytes(1, piece.text, &message);
    AppendFloat(2, piece.score, &message);
    AppendNumber(3, static_cast<uint64_t>(piece.type), &message);
    AppendBytes(1, message, &bytes);
  }
  std::string trainer;
  AppendNumber(3, static_cast<uint64_t>(file.kind), &trainer);
  AppendNumber(24, file.whitespace_as_suffix, &trainer);
  AppendNumber(35, file.byte_fallback, &trainer);
  // A negative id is sign-extended to ten bytes, as in every protocol buffer.
  AppendNumber(40, static_cast<uint64_t>(int64_t{file.unk_id}), &trainer);
  AppendNumber(41, static_cast<uint64_t>(int64_t{file.bos_id}), &trainer);
  AppendNumber(42, static_cast<uint64_t>(int64_t{file.eos_id}), &trainer);
  AppendBytes(2, trainer, &bytes);
  std::string normalizer;
  AppendBytes(2, file.character_map, &normalizer);
  AppendNumber(3, file.add_dummy_prefix, &normalizer);
  AppendNumber(4, file.remove_extra_whitespaces, &normalizer);
  AppendNumber(5, file.escape_whitespaces, &normalizer);
  AppendBytes(3, normalizer, &bytes);
  return bytes;
}

std::string SerializeForEncoding(SentencePieceFile file) {
  file.character_map.clear();
  file.add_dummy_prefix = false;
  file.remove_extra_whitespaces = false;
  file.escape_whitespaces = false;
  file.whitespace_as_suffix = false;
  const SentencePieceFile usual;
  file.unk_id = usual.unk_id;
  file.bos_id = usual.bos_id;
  file.eos_id = usual.eos_id;
  return SerializeSentencePieceFile(file);
}

}  // namespace annulus
