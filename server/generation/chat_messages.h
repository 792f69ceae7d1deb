#ifndef ANNULUS_SERVER_GENERATION_CHAT_MESSAGES_H_
#define ANNULUS_SERVER_GENERATION_CHAT_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"

namespace annulus::server {

// The documents of a conversation, and whether they are put into frames with their titles.
struct FramedDocuments {
  std::vector<ChatDocument> documents;
  bool framed = false;
};

// Checks counts and sizes, then applies the model's chat template. `place` is the path of the
// messages in the request: "messages" or "spec.messages". INVALID_ARGUMENT names the field;
// UNIMPLEMENTED (reason UNSUPPORTED) if the model has no template. Asks `memory` for what it needs
// beyond MessagesWork.
absl::StatusOr<RenderedChat> ApplyChatTemplate(const Engine& engine, const v1::Messages& messages,
                                               absl::string_view place, FramedDocuments documents,
                                               const CancelFlag& cancel, MemoryGrant& memory);

// For models without a template: joins the contents with newlines. INVALID_ARGUMENT if there is no
// message, or if the request has fields that only a template could use.
absl::StatusOr<std::string> JoinContents(const v1::Messages& messages, absl::string_view place);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_CHAT_MESSAGES_H_
