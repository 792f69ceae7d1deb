#include "absl/strings/str_cat.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace annulus {
namespace {

class ByteTokenizer : public Tokenizer {
 public:
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text, bool) const override {
    if (const auto bad = FirstInvalidUtf8(text); bad.has_value()) return InvalidUtf8Error(*bad);
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return ids;
  }

  void DecodeNext(int32_t id, DecodeState*, std::string* bytes) const override {
    if (id == kByteTokenizerEndOfText) {
      bytes->append("<|endoftext|>");
    } else if (HasToken(id)) {
      bytes->push_back(static_cast<char>(id));
    }
  }

  int32_t vocabulary_size() const override { return kByteTokenizerEndOfText + 1; }
  bool HasToken(int32_t id) const override { return id >= 0 && id < vocabulary_size(); }
  bool IsSpecial(int32_t id) const override { return id == kByteTokenizerEndOfText; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  const char* kind() const override { return "bytes"; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace annulus
