#ifndef ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_BLOCKS_H_
#define ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_BLOCKS_H_

#include <string>

#include "absl/status/status.h"
#include "server/http/anthropic/messages_request.h"

namespace annulus::server {

// Puts the blocks of a request into its messages and documents. A block is read in parts, into
// MessagesRequest::block, and is finished when the next one starts, or what it stands in ends.
// Errors are INVALID_ARGUMENT and name the field.

// Finishes the block before, and starts the one at this path.
absl::Status StartBlock(MessagesRequest& request, std::string field);
// Puts the block where it belongs, once all of it has been read. No-op if there is none.
absl::Status FinishBlock(MessagesRequest& request);

// The role of the newest message turns out to be the assistant's: takes out the line feeds between
// texts that were read before it (MessagesRequest::joints).
void DropJoints(MessagesRequest& request);

// Call when all has been read. All documents have citations, or none: else an answer by one without
// them would seem to rest on none.
absl::Status FinishCitations(MessagesRequest& request);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_BLOCKS_H_
