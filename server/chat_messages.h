#ifndef ANNULUS_SERVER_CHAT_MESSAGES_H_
#define ANNULUS_SERVER_CHAT_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"

namespace annulus {

// Documents of a conversation.
struct FramedDocuments {
  std::vector<ChatDocument> documents;
  bool framed = false;
};

// Checks counts and sizes, then applies the model's chat template. `place` is where the messages
// stand in the request: "messages" or "spec.messages". INVALID_ARGUMENT names the field,
// UNIMPLEMENTED (UNSUPPORTED): the model has no template. `memory` is asked beside MessagesWork.
absl::StatusOr<RenderedChat> ApplyChatTemplate(const Engine& engine, const v1::Messages& messages,
                                               absl::string_view place, FramedDocuments documents,
                                               const CancelFlag& cancel, MemoryGrant& memory);

// For models without a template: the contents, joined by line feeds. INVALID_ARGUMENT where there
// is no message, or something that only a template could use.
absl::StatusOr<std::string> JoinContents(const v1::Messages& messages, absl::string_view place);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CHAT_MESSAGES_H_
