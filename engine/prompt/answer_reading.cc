#include "engine/prompt/answer_reading.h"

#include <string>

#include "engine/base/field_error.h"
#include "engine/prompt/call_arguments.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/answer/answer_tools.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status SetReading(const AnswerReading& model, const ChatRequest& request, RenderedChat& chat,
                        MemoryGrant& memory) {
  chat.reading = model;
  if (model.format != nullptr) {
    chat.reading.in_reasoning =
        request.continue_final_message
            ? model.format->EndsInReasoning(request.messages.back().content.value_or(""))
            : request.add_generation_prompt && model.format->OpensReasoning(chat.text);
    chat.reading.may_think = model.reasoning && request.add_generation_prompt &&
                             !model.format->ClosesReasoning(chat.text);
  }
  if (!request.tools.has_value()) return absl::OkStatus();
  const size_t bytes = AnswerTools::ParseBytes(request.tools->size());
  ANNULUS_RETURN_IF_ERROR(memory.Allow(
      chat.text.capacity() + chat.token_ids.capacity() * sizeof(chat.token_ids[0]) + bytes));
  auto tools = AnswerTools::Parse(*request.tools);
  if (model.format == nullptr) {
    // The template takes definitions of any form; nothing is a call.
    chat.reading.strict_tools = tools.ok() && (*tools)->any_strict();
    return absl::OkStatus();
  }
  if (!tools.ok()) {
    return FieldError(tools.status().code(), "messages.tools", tools.status().message());
  }
  chat.reading.strict_tools = (*tools)->any_strict();
  chat.reading.tools_bytes = bytes;
  if (!(*tools)->empty()) chat.reading.tools = *std::move(tools);
  return absl::OkStatus();
}

absl::StatusOr<ChatRequest> AdaptCalls(const AnswerReading& model, const ChatRequest& request,
                                       const CancelFlag& cancel, MemoryGrant& memory) {
  ChatRequest adapted = request;
  if (model.format == nullptr) return adapted;
  const bool as_text = model.format->family().text_arguments;
  for (ChatMessage& message : adapted.messages) {
    if (!message.tool_calls.has_value()) continue;
    if (!as_text && !message.content.has_value()) message.content = "";
    if (as_text && message.content == "") message.content.reset();
    ANNULUS_RETURN_IF_ERROR(memory.Allow(WithArgumentsBytes(message.tool_calls->size())));
    ANNULUS_ASSIGN_OR_RETURN(message.tool_calls,
                             WithArguments(*message.tool_calls, as_text, cancel));
  }
  return adapted;
}

}  // namespace annulus
