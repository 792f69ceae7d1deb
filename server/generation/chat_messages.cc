#include "server/generation/chat_messages.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/messages.h"
#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

constexpr size_t kLongestRole = 64;
constexpr size_t kLongestName = 256;
constexpr size_t kLongestJson = size_t{1} << 20;

absl::Status CheckLength(absl::string_view field, const std::string& text, size_t least,
                         size_t most) {
  if (text.size() >= least && text.size() <= most) return absl::OkStatus();
  return FieldError(field,
                    absl::StrCat("has ", text.size(), " bytes; allowed are ", least, " to ", most));
}

absl::Status CheckMessage(const v1::Message& message, const std::string& place) {
  ANNULUS_RETURN_IF_ERROR(
      CheckLength(absl::StrCat(place, ".role"), message.role(), 1, kLongestRole));
  ANNULUS_RETURN_IF_ERROR(
      CheckLength(absl::StrCat(place, ".name"), message.name(), 0, kLongestName));
  ANNULUS_RETURN_IF_ERROR(
      CheckLength(absl::StrCat(place, ".tool_call_id"), message.tool_call_id(), 0, kLongestName));
  return CheckLength(absl::StrCat(place, ".tool_calls"), message.tool_calls(), 0, kLongestJson);
}

// Checks only the lower limit: decoding has checked the upper one.
absl::Status CheckCount(const v1::Messages& messages, absl::string_view place) {
  if (messages.messages_size() >= 1) return absl::OkStatus();
  return FieldError(place, absl::StrCat("0 messages are not allowed: 1 to ", kMostMessages));
}

absl::Status CheckMessages(const v1::Messages& messages, absl::string_view place) {
  ANNULUS_RETURN_IF_ERROR(CheckCount(messages, place));
  if (messages.continue_final_message() && messages.add_generation_prompt()) {
    return FieldError(absl::StrCat(place, ".continue_final_message"),
                      "is not allowed with add_generation_prompt: leave that out");
  }
  for (int i = 0; i < messages.messages_size(); ++i) {
    ANNULUS_RETURN_IF_ERROR(
        CheckMessage(messages.messages(i), absl::StrCat(place, ".messages[", i, "]")));
  }
  ANNULUS_RETURN_IF_ERROR(
      CheckLength(absl::StrCat(place, ".tools"), messages.tools(), 0, kLongestJson));
  return CheckLength(absl::StrCat(place, ".template_options"), messages.template_options(), 0,
                     kLongestJson);
}

}  // namespace

absl::StatusOr<RenderedChat> ApplyChatTemplate(const Engine& engine, const v1::Messages& messages,
                                               absl::string_view place, FramedDocuments documents,
                                               const CancelFlag& cancel, MemoryGrant& memory) {
  if (!engine.model().has_chat_template) {
    return ReasonError(absl::StatusCode::kUnimplemented, v1::ERROR_REASON_UNSUPPORTED,
                       "the model has no chat template; send text");
  }
  ANNULUS_RETURN_IF_ERROR(CheckMessages(messages, place));
  ChatRequest request = FromMessage(messages);
  request.documents = std::move(documents.documents);
  request.framed = documents.framed;
  absl::StatusOr<RenderedChat> chat = engine.ApplyChatTemplate(request, cancel, memory);
  if (chat.ok()) return chat;
  // The engine's field names begin with "messages"; replace that by `place`.
  const auto field = chat.status().GetPayload(kFieldPayload);
  if (!field.has_value()) return chat;
  const std::string name(*field);
  return MoveField(chat.status(), absl::StrCat(place, absl::StripPrefix(name, "messages")));
}

absl::StatusOr<std::string> JoinContents(const v1::Messages& messages, absl::string_view place) {
  ANNULUS_RETURN_IF_ERROR(CheckCount(messages, place));
  for (const auto& [given, field] :
       {std::pair(messages.has_tools(), ".tools"),
        std::pair(messages.has_template_options(), ".template_options"),
        std::pair(messages.continue_final_message(), ".continue_final_message")}) {
    if (given) {
      return FieldError(absl::StrCat(place, field),
                        "is for chat templates, but the model has none; leave it out");
    }
  }
  std::string text;
  for (const v1::Message& message : messages.messages()) {
    if (!text.empty()) text.push_back('\n');
    text.append(message.content());
  }
  return text;
}

}  // namespace annulus::server
