#ifndef ANNULUS_SERVER_HTTP_OPENAI_RESPONSES_ANSWER_H_
#define ANNULUS_SERVER_HTTP_OPENAI_RESPONSES_ANSWER_H_

#include "server/http/answer_form.h"

namespace annulus::server {

// POST /v1/responses
absl::StatusOr<FormRequest> ReadResponsesForm(const std::deque<std::string>& body,
                                              CallMemory& memory, const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_OPENAI_RESPONSES_ANSWER_H_
