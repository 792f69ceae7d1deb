#include "server/work_cost.h"

#include <algorithm>
#include <cstdint>

#include "engine/api.h"

namespace annulus {
namespace {

// Ids at most one for each byte, in an array that doubles: while it moves, the old one is there.
constexpr size_t kIdsPerByte = 3 * sizeof(int32_t);
// Of a tokenizer, whatever the text: its parts of 64 KiB in every stage.
constexpr size_t kTokenizer = size_t{1} << 20;
// The conversation as the engine's values, as JSON, as the template's text, and each while it
// grows.
constexpr size_t kChatCopies = 8;
constexpr size_t kChatMessage = 3 * sizeof(ChatMessage) + 512;

size_t TextOf(const v1::Message& message) {
  return message.role().size() + message.content().size() + message.name().size() +
         message.reasoning().size() + message.tool_calls().size() + message.tool_call_id().size();
}

}  // namespace

size_t TokenizeWork(size_t text_bytes) {
  return std::min(text_bytes * 64, kTokenizer) + text_bytes * kIdsPerByte;
}

size_t ChatWork(const v1::Messages& messages) {
  size_t text = messages.tools().size() + messages.template_options().size();
  for (const v1::Message& message : messages.messages()) text += TextOf(message);
  return static_cast<size_t>(messages.messages_size()) * kChatMessage + text * kChatCopies +
         TokenizeWork(text);
}

}  // namespace annulus
