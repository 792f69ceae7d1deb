#include "server/http/reply_terms.h"

#include <utility>

namespace annulus::server {

void ReplyTerms::AddHeaders(HttpAnswer& answer) const {
  answer.headers.insert(answer.headers.end(), headers.begin(), headers.end());
}

std::string ReplyTerms::Format(HttpAnswer answer, bool body_came) const {
  AddHeaders(answer);
  return Serialize(answer, keep_alive && body_came, /*with_body=*/true);
}

std::string ReplyTerms::FormatError(const HttpError& error, bool body_came) const {
  return Format(ErrorAnswer(error, errors), body_came);
}

}  // namespace annulus::server
