#include "engine/text/tokenizer.h"

namespace annulus {
namespace {

class ByteStream : public StreamingEncoder {
 public:
  explicit ByteStream(const CancelFlag& cancel) : StreamingEncoder(cancel) {}

 protected:
  absl::Status Push(absl::string_view text, bool, std::vector<int32_t>* ids) override {
    for (const char byte : text) ids->push_back(static_cast<uint8_t>(byte));
    return absl::OkStatus();
  }
};

class ByteTokenizer : public Tokenizer {
 public:
  std::unique_ptr<StreamingEncoder> NewStream(bool, const CancelFlag& cancel) const override {
    return std::make_unique<ByteStream>(cancel);
  }
  std::unique_ptr<StreamingEncoder> NewPlainStream(const CancelFlag& cancel) const override {
    return std::make_unique<ByteStream>(cancel);
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
  bool IsControl(int32_t id) const override { return IsSpecial(id); }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  const char* kind() const override { return "bytes"; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace annulus
