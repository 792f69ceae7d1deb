#ifndef ANNULUS_CLIENT_CLI_CHAT_CHAT_ARCHIVE_H_
#define ANNULUS_CLIENT_CLI_CHAT_CHAT_ARCHIVE_H_

#include <string>

#include "absl/status/status.h"
#include "client/cli/chat/conversation.h"
#include "client/cli/session.h"

namespace annulus::client {

// The conversations that `annulus chat` saves by itself: a file for each, in a folder that only
// this user may search. Keeps the newest 100.

// Returns $XDG_STATE_HOME/annulus/chats, else ~/.local/state/annulus/chats; empty if neither
// variable is set.
std::string ChatFolder(const Environment& environment);

// Returns the path of the conversation that was saved last; empty if there is none.
std::string NewestChat(const std::string& folder);

// Returns a path for a new conversation, which no other process uses.
std::string NewChat(const std::string& folder);

// Writes a conversation, and deletes the oldest beyond the limit. UNAVAILABLE if writing fails.
absl::Status SaveChat(const std::string& path, const Conversation& conversation);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_CHAT_CHAT_ARCHIVE_H_
