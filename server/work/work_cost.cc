#include "server/work/work_cost.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "server/base/errors.h"

namespace annulus::server {
namespace {

// Copies of a conversation that exist at a time: the engine's values, the same with marks for
// documents, the search for these marks, and the joined texts while they grow.
constexpr size_t kChatCopies = 8;
constexpr size_t kChatMessage = 3 * sizeof(ChatMessage) + 512;

size_t TextOf(const v1::Message& message) {
  return message.role().size() + message.content().size() + message.name().size() +
         message.reasoning().size() + message.tool_calls().size() + message.tool_call_id().size();
}

}  // namespace

size_t MessagesWork(const v1::Messages& messages) {
  size_t text = messages.tools().size() + messages.template_options().size();
  for (const v1::Message& message : messages.messages()) text += TextOf(message);
  return static_cast<size_t>(messages.messages_size()) * kChatMessage + text * kChatCopies;
}

size_t JoinedWork(const v1::Messages& messages) {
  TokenizeMemory ids;
  for (const v1::Message& message : messages.messages()) ids.Add(message.content());
  return MessagesWork(messages) + ids.bytes();
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
    if (!text.ok()) break;  // decoding everything will fail at the same place, with the error
    size += text->size();
    if (size > most_bytes) return AnswerTooLargeError(size, most_bytes);
  }
  return 3 * size + std::min(ids.size() * 64, kSlack);  // a text grows by doubling
}

}  // namespace annulus::server
