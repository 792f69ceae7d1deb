#ifndef ANNULUS_SERVER_HTTP_REPLY_TERMS_H_
#define ANNULUS_SERVER_HTTP_REPLY_TERMS_H_

#include <memory>
#include <string>
#include <vector>

#include "server/base/memory_budget.h"
#include "server/http/http_errors.h"
#include "server/http/http_message.h"

namespace annulus::server {

// What a request's head settles about every answer to it.
struct ReplyTerms {
  ErrorForm errors = ErrorForm::kOpenAi;
  bool keep_alive = true;
  std::vector<std::string> headers = {};               // of every answer
  std::shared_ptr<MemoryBudget> body_share = nullptr;  // HttpExchange::body_share

  // Adds `headers` to the answer.
  void AddHeaders(HttpAnswer& answer) const;
  // The whole answer, formatted, with `headers`. `body_came`: false if bytes of the request's body
  // may still come, so that the connection must end behind the answer.
  std::string Format(HttpAnswer answer, bool body_came = true) const;
  // The same for an answer with this error.
  std::string FormatError(const HttpError& error, bool body_came = true) const;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_REPLY_TERMS_H_
