#include "engine/prompt/encoder_stream.h"

#include <algorithm>
#include <utility>

#include "engine/prompt/document_frame.h"
#include "engine/prompt/token_placer.h"
#include "engine/text/streaming_encoder.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Bytes of symbols, merges and ids for each byte of a stretch of text that cannot be cut: measured
// 36 with the Llama 2 tokenizer and a text of one repeated letter.
constexpr size_t kMemoryPerHeldByte = 36;
constexpr size_t kPieceBytes = 64 << 10;

class EncoderStream final : public TextStream {
 public:
  EncoderStream(const Tokenizer& tokenizer, const CancelFlag& cancel)
      : tokenizer_(tokenizer), encoder_(tokenizer.NewPlainStream(cancel)) {}

  absl::Status Append(absl::string_view bytes, std::vector<int32_t>& ids) override {
    while (!bytes.empty()) {
      const absl::string_view piece = bytes.substr(0, kPieceBytes);
      bytes.remove_prefix(piece.size());
      const size_t before = ids.size();
      placer_.AddText(piece);
      ANNULUS_RETURN_IF_ERROR(encoder_->Append(piece, &ids));
      Scan(ids, before);
      if (ids.size() > before) placer_.SkipTo(bytes_);
      bytes_ += static_cast<int64_t>(piece.size());
      // Ids come in the order of the text: after new ids, only new text can be held back.
      held_bytes_ = ids.size() > before ? piece.size() : held_bytes_ + piece.size();
    }
    return absl::OkStatus();
  }

  absl::Status Finish(std::vector<int32_t>& ids) override {
    held_bytes_ = 0;
    const size_t before = ids.size();
    ANNULUS_RETURN_IF_ERROR(encoder_->Finish(&ids));
    Scan(ids, before);
    placer_.Finish();
    return absl::OkStatus();
  }

  size_t memory_bytes() const override {
    return held_bytes_ * kMemoryPerHeldByte + placer_.memory_bytes();
  }
  const std::vector<TokenPlace>& places() const override { return placer_.places(); }
  bool holds_end_mark() const override { return end_mark_.found(); }

 private:
  // Scans the text of the ids: the normalizer may have changed other letters to plain ones.
  void Scan(const std::vector<int32_t>& ids, size_t begin) {
    for (size_t i = begin; i < ids.size(); ++i) {
      token_.clear();
      tokenizer_.DecodeNext(ids[i], &decoded_, &token_);
      placer_.AddToken(token_);
      if (!end_mark_.found()) end_mark_.Add(token_);
    }
  }

  const Tokenizer& tokenizer_;
  const std::unique_ptr<StreamingEncoder> encoder_;
  DecodeState decoded_;
  std::string token_;  // of one id
  EndMarkScanner end_mark_;
  TokenPlacer placer_;
  int64_t bytes_ = 0;      // of the text before the piece that is read
  size_t held_bytes_ = 0;  // at most
};

}  // namespace

std::unique_ptr<TextStream> NewEncoderStream(const Tokenizer& tokenizer, const CancelFlag& cancel) {
  return std::make_unique<EncoderStream>(tokenizer, cancel);
}

}  // namespace annulus
