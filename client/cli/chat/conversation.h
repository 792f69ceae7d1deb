#ifndef ANNULUS_CLIENT_CLI_CHAT_CONVERSATION_H_
#define ANNULUS_CLIENT_CLI_CHAT_CONVERSATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"

namespace annulus::client {

// A conversation of `annulus chat`, as it is saved and loaded.
struct Conversation {
  std::vector<std::string> documents{};  // names on the server, in order
  std::vector<std::string> files{};  // absolute paths that the documents were read from, if known
  std::vector<v1::Message> messages{};  // roles and contents only
};

// Formats a conversation as
// {"documents": [..], "files": [..], "messages": [{"role": "..", "content": ".."}, ..]}, indented,
// so that people can read and edit it.
std::string ConversationJson(const Conversation& conversation);

// Parses the format of ConversationJson. INVALID_ARGUMENT if the text does not have that form;
// `what` names it in the message.
absl::StatusOr<Conversation> ParseConversation(absl::string_view what, const std::string& text);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_CHAT_CONVERSATION_H_
