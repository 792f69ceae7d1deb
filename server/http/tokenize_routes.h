#ifndef ANNULUS_SERVER_HTTP_TOKENIZE_ROUTES_H_
#define ANNULUS_SERVER_HTTP_TOKENIZE_ROUTES_H_

#include "server/http/routes.h"

namespace annulus::server {

// POST /tokenize and /detokenize, with vLLM's shapes.
absl::StatusOr<HttpAnswer> AnswerTokenize(const HttpWork& work, const std::deque<std::string>& body,
                                          const CancelFlag& cancel);
absl::StatusOr<HttpAnswer> AnswerDetokenize(const HttpWork& work,
                                            const std::deque<std::string>& body,
                                            const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_TOKENIZE_ROUTES_H_
