#ifndef ANNULUS_SERVER_HTTP_HTTP_ERRORS_H_
#define ANNULUS_SERVER_HTTP_HTTP_ERRORS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/generation/service_context.h"
#include "server/http/http_message.h"

namespace annulus::server {

// A failed call as HTTP tells it.
struct HttpError {
  int status = 500;
  std::string type = {};     // OpenAI's: "invalid_request_error"
  std::string code = {};     // OpenAI's where it has one, else the reason: "queue_full"
  std::string message = {};  // as over gRPC
  std::string param = {};    // the field; empty: none
  std::string request_id = {};
  // For how long to wait, if waiting helps.
  std::optional<int64_t> retry_ms = std::nullopt;
  // Whether the queue is full, for which Anthropic's API has a status of its own.
  bool queue_full = false;
  // Whether SDKs would repeat the request by its status, though that cannot help.
  bool never_retry = false;
};

// Reads what a client is told at the end of a call.
HttpError ToHttpError(const CallEnd& end);

// {"error": {"message", "type", "param", "code"}}
std::string OpenAiErrorBody(const HttpError& error);

// {"type": "error", "error": {"type", "message"}, "request_id"}
std::string AnthropicErrorBody(const HttpError& error);

// The API whose form an error has.
enum class ErrorForm : uint8_t { kOpenAi, kAnthropic };

// The form that the client of a request reads: Anthropic's SDK sends a version.
ErrorForm ErrorFormOf(const HttpRequest& request);

// The answer with such a body: x-request-id, and for retries Retry-After, retry-after-ms and
// x-should-retry.
HttpAnswer ErrorAnswer(const HttpError& error, ErrorForm form);

// The headers that name a request for its client.
std::vector<std::string> RequestIdHeaders(absl::string_view request_id);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_ERRORS_H_
