#include "server/work_cost.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "server/errors.h"

namespace annulus {
namespace {

// Ids, mostly fewer than one for each byte, in an array that doubles: while it moves, the old one
// is there.
constexpr size_t kIdsPerByte = 3 * sizeof(int32_t);
// Of a tokenizer, whatever the text: its parts of 64 KiB in every stage.
constexpr size_t kTokenizer = size_t{1} << 20;
// Of the longest stretch that is not cut: the engine's streams count as much (EncoderStream).
constexpr size_t kStretchPerByte = 36;
// The conversation as the engine's values, as JSON, as the template's text, and each while it
// grows.
constexpr size_t kChatCopies = 8;
constexpr size_t kChatMessage = 3 * sizeof(ChatMessage) + 512;

size_t TextOf(const v1::Message& message) {
  return message.role().size() + message.content().size() + message.name().size() +
         message.reasoning().size() + message.tool_calls().size() + message.tool_call_id().size();
}

// Of texts one after another, the longest stretch without a place where a space or line end begins.
class Stretches {
 public:
  void Add(absl::string_view text) {
    bytes_ += text.size();
    for (const char c : text) {
      const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
      if (space && !space_) now_ = 0;
      space_ = space;
      longest_ = std::max(longest_, ++now_);
    }
  }

  size_t Work() const {
    return std::min(bytes_ * 64, kTokenizer) + bytes_ * kIdsPerByte + longest_ * kStretchPerByte;
  }

 private:
  size_t bytes_ = 0;
  size_t longest_ = 0;
  size_t now_ = 0;
  bool space_ = false;
};

}  // namespace

size_t TokenizeWork(absl::string_view text) {
  Stretches stretches;
  stretches.Add(text);
  return stretches.Work();
}

size_t ChatWork(const v1::Messages& messages) {
  size_t text = messages.tools().size() + messages.template_options().size();
  Stretches stretches;
  for (const v1::Message& message : messages.messages()) {
    text += TextOf(message);
    for (const std::string* part : {&message.content(), &message.reasoning(), &message.role(),
                                    &message.name(), &message.tool_calls()}) {
      stretches.Add(*part);
    }
  }
  stretches.Add(messages.tools());
  return static_cast<size_t>(messages.messages_size()) * kChatMessage + text * kChatCopies +
         stretches.Work();
}

absl::StatusOr<size_t> DetokenizeWork(const Engine& engine, std::span<const int32_t> ids,
                                      bool skip_special, size_t most_bytes,
                                      const CancelFlag& cancel) {
  constexpr size_t kPiece = 256;
  constexpr size_t kSlack = size_t{16} << 10;
  size_t size = 0;
  for (size_t begin = 0; begin < ids.size(); begin += kPiece) {
    const auto text = engine.Detokenize(ids.subspan(begin, std::min(kPiece, ids.size() - begin)),
                                        skip_special, cancel);
    if (!text.ok()) break;  // the whole fails at the same place, and says which
    size += text->size();
    if (size > most_bytes) return AnswerTooLargeError(size, most_bytes);
  }
  return 3 * size + std::min(ids.size() * 64, kSlack);  // a text grows by doubling
}

}  // namespace annulus
