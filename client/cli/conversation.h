#ifndef ANNULUS_CLIENT_CLI_CONVERSATION_H_
#define ANNULUS_CLIENT_CLI_CONVERSATION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"

namespace annulus {

// What `annulus chat` saves and loads.
struct Conversation {
  std::vector<std::string> documents;  // names on the server, in order
  std::vector<v1::Message> messages;   // roles and contents only
};

// {"documents": [..], "messages": [{"role": "..", "content": ".."}, ..]}, indented, for people to
// read and edit.
std::string ConversationJson(const Conversation& conversation);

// Reads it back. INVALID_ARGUMENT for what is not of that form; `what` names it in the message.
absl::StatusOr<Conversation> ParseConversation(absl::string_view what, const std::string& text);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_CONVERSATION_H_
