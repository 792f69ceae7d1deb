#ifndef ANNULUS_SERVER_HTTP_OPENAI_COMPLETIONS_ANSWER_H_
#define ANNULUS_SERVER_HTTP_OPENAI_COMPLETIONS_ANSWER_H_

#include "server/http/answer_form.h"

namespace annulus::server {

// POST /v1/chat/completions
absl::StatusOr<FormRequest> ReadChatForm(const std::deque<std::string>& body, CallMemory& memory,
                                         const CancelFlag& cancel);
// POST /v1/completions
absl::StatusOr<FormRequest> ReadCompletionForm(const std::deque<std::string>& body,
                                               CallMemory& memory, const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPENAI_COMPLETIONS_ANSWER_H_
