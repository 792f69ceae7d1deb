#include "engine/prompt/answer_reading.h"

#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/field_error.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/answer/answer_tools.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Json = nlohmann::ordered_json;

Json Parsed(const std::string& text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string Written(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The calls with their arguments as a text or as an object. What is no JSON array stays.
std::string WithArguments(const std::string& calls, bool as_text) {
  Json list = Parsed(calls);
  if (!list.is_array()) return calls;
  for (Json& call : list) {
    const auto function = call.is_object() ? call.find("function") : call.end();
    if (function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments == function->end()) continue;
    if (as_text && arguments->is_object()) {
      *arguments = Written(*arguments);
    } else if (!as_text && arguments->is_string()) {
      const Json object = Parsed(arguments->get<std::string>());
      if (object.is_object()) *arguments = object;
    }
  }
  return Written(list);
}

}  // namespace

absl::Status SetReading(const AnswerReading& model, const ChatRequest& request, RenderedChat& chat,
                        MemoryGrant& memory) {
  chat.reading = model;
  if (model.format == nullptr) return absl::OkStatus();
  chat.reading.in_reasoning =
      request.add_generation_prompt && model.format->OpensReasoning(chat.text);
  if (!request.tools.has_value()) return absl::OkStatus();
  const size_t bytes = AnswerTools::ParseBytes(request.tools->size());
  ANNULUS_RETURN_IF_ERROR(memory.Allow(
      chat.text.capacity() + chat.token_ids.capacity() * sizeof(chat.token_ids[0]) + bytes));
  auto tools = AnswerTools::Parse(*request.tools);
  if (!tools.ok()) {
    return FieldError(tools.status().code(), "messages.tools", tools.status().message());
  }
  chat.reading.tools_bytes = bytes;
  if (!(*tools)->empty()) chat.reading.tools = *std::move(tools);
  return absl::OkStatus();
}

absl::StatusOr<ChatRequest> AdaptCalls(const AnswerReading& model, const ChatRequest& request,
                                       MemoryGrant& memory) {
  ChatRequest adapted = request;
  if (model.format == nullptr) return adapted;
  const bool as_text = model.format->family().text_arguments;
  for (ChatMessage& message : adapted.messages) {
    if (!message.tool_calls.has_value()) continue;
    if (!as_text && !message.content.has_value()) message.content = "";
    if (as_text && message.content == "") message.content.reset();
    constexpr size_t kTreeBytes = 64;  // of JSON's values, for each byte of their text
    ANNULUS_RETURN_IF_ERROR(memory.Allow(kTreeBytes * message.tool_calls->size()));
    message.tool_calls = WithArguments(*message.tool_calls, as_text);
  }
  return adapted;
}

}  // namespace annulus
