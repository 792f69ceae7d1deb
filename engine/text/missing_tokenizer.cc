#include "engine/text/tokenizer.h"

namespace annulus {
namespace {

absl::Status Missing() {
  return absl::UnimplementedError(
      "the model directory has no tokenizer.json and no tokenizer.model, so the server accepts "
      "only token ids: send token_ids, or add the file and restart the server");
}

class MissingStream : public StreamingEncoder {
 public:
  explicit MissingStream(const CancelFlag& cancel) : StreamingEncoder(cancel) {}

 protected:
  absl::Status Push(absl::string_view, bool, std::vector<int32_t>*) override { return Missing(); }
};

class MissingTokenizer : public Tokenizer {
 public:
  std::unique_ptr<StreamingEncoder> NewStream(bool, const CancelFlag& cancel) const override {
    return std::make_unique<MissingStream>(cancel);
  }
  std::unique_ptr<StreamingEncoder> NewPlainStream(const CancelFlag& cancel) const override {
    return std::make_unique<MissingStream>(cancel);
  }
  void DecodeNext(int32_t, DecodeState*, std::string*) const override {}
  int32_t vocabulary_size() const override { return 0; }
  bool HasToken(int32_t) const override { return false; }
  bool IsSpecial(int32_t) const override { return false; }
  bool IsControl(int32_t) const override { return false; }
  std::optional<int32_t> bos() const override { return std::nullopt; }
  const char* kind() const override { return "none"; }
  absl::Status usable() const override { return Missing(); }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeMissingTokenizer() { return std::make_unique<MissingTokenizer>(); }

}  // namespace annulus
