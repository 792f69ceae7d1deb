#ifndef ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_ANSWER_H_
#define ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_ANSWER_H_

#include "server/http/answer_form.h"
#include "server/http/routes.h"

namespace annulus::server {

// POST /v1/messages
absl::StatusOr<FormRequest> ReadMessagesForm(const std::deque<std::string>& body,
                                             CallMemory& memory, const CancelFlag& cancel);
// POST /v1/messages/count_tokens: the length of the prompt that /v1/messages would read.
absl::StatusOr<HttpAnswer> CountMessageTokens(const HttpWork& work,
                                              const std::deque<std::string>& body,
                                              const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ANTHROPIC_MESSAGES_ANSWER_H_
