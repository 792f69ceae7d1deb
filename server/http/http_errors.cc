#include "server/http/http_errors.h"

#include <google/protobuf/any.pb.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/error_details.pb.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

// HTTP status of each reason in proto/annulus/v1/errors.proto. A reason that is not listed uses the
// status of its gRPC code.
struct Row {
  absl::string_view reason;
  int status;
  absl::string_view code;  // empty: the reason's name
};

constexpr Row kRows[] = {
    {"MODEL_NOT_FOUND", 404, "model_not_found"},
    {"CONTEXT_TOO_LONG", 400, "context_length_exceeded"},
    {"QUEUE_FULL", 429, ""},
    {"QUOTA_EXCEEDED", 429, "rate_limit_exceeded"},
    {"MEMORY_TOO_SMALL", 400, ""},
    {"ANSWER_TOO_LARGE", 400, ""},
    {"MESSAGE_TOO_LARGE", 413, ""},
    {"DOCUMENT_NOT_KEPT", 400, ""},
    {"LOADING", 503, ""},
    {"DRAINING", 503, ""},
    {"RANK_FAILED", 503, ""},
    {"SLOW_READER", 408, ""},
    {"TOKEN_REJECTED", 401, "invalid_api_key"},
    {"UNSUPPORTED", 400, ""},
};

int StatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kAlreadyExists:
      return 409;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 408;
    default:
      return 500;
  }
}

absl::string_view TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

constexpr int kOverloaded = 529;

// Anthropic's name for a status.
absl::string_view AnthropicTypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case kOverloaded:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// The status as this form tells it.
int StatusIn(ErrorForm form, const HttpError& error) {
  return form == ErrorForm::kAnthropic && error.queue_full ? kOverloaded : error.status;
}

// Statuses that the SDKs of OpenAI and Anthropic repeat.
bool IsRepeated(int status) {
  return status == 408 || status == 409 || status == 429 || status >= 500;
}

// Whether the same request may succeed at another time.
bool MayPass(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted ||
         code == absl::StatusCode::kInternal;
}

}  // namespace

HttpError ToHttpError(const CallEnd& end) {
  const auto code = static_cast<absl::StatusCode>(end.status.code());
  HttpError error{
      .status = StatusOf(code), .message = end.status.message(), .request_id = end.request_id};
  std::string reason;
  bool is_media = false;
  for (const google::protobuf::Any& detail : end.status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::RetryInfo retry;
    if (detail.UnpackTo(&info)) {
      reason = info.reason();
      is_media = info.metadata().contains("media_type");
    } else if (detail.UnpackTo(&bad_request) && bad_request.field_violations_size() > 0) {
      error.param = bad_request.field_violations(0).field();
    } else if (detail.UnpackTo(&retry)) {
      error.retry_ms =
          google::protobuf::util::TimeUtil::DurationToMilliseconds(retry.retry_delay());
    }
  }
  error.code = absl::AsciiStrToLower(reason);
  const Row* const row = std::find_if(std::begin(kRows), std::end(kRows),
                                      [&](const Row& row) { return row.reason == reason; });
  if (row != std::end(kRows)) {
    error.status = row->status;
    if (!row->code.empty()) error.code = std::string(row->code);
  }
  if (is_media) error.status = 415;
  error.queue_full = reason == "QUEUE_FULL";
  error.type = std::string(TypeOf(error.status));
  error.never_retry = IsRepeated(error.status) && (!MayPass(code) || end.retry_pushback == "-1");
  return error;
}

std::string OpenAiErrorBody(const HttpError& error) {
  return absl::StrCat("{\"error\":{\"message\":", JsonString(error.message),
                      ",\"type\":", JsonString(error.type),
                      ",\"param\":", error.param.empty() ? "null" : JsonString(error.param),
                      ",\"code\":", error.code.empty() ? "null" : JsonString(error.code), "}}");
}

std::string AnthropicErrorBody(const HttpError& error) {
  const int status = StatusIn(ErrorForm::kAnthropic, error);
  return absl::StrCat(
      "{\"type\":\"error\",\"error\":{\"type\":", JsonString(AnthropicTypeOf(status)),
      ",\"message\":", JsonString(error.message), "},\"request_id\":", JsonString(error.request_id),
      "}");
}

ErrorForm ErrorFormOf(const HttpRequest& request) {
  const bool is_anthropic =
      !request.Find("anthropic-version").empty() || absl::StartsWith(request.path, "/v1/messages");
  return is_anthropic ? ErrorForm::kAnthropic : ErrorForm::kOpenAi;
}

HttpAnswer ErrorAnswer(const HttpError& error, ErrorForm form) {
  const bool is_anthropic = form == ErrorForm::kAnthropic;
  HttpAnswer answer{.status = StatusIn(form, error),
                    .content_type = "application/json",
                    .body = is_anthropic ? AnthropicErrorBody(error) : OpenAiErrorBody(error),
                    .headers = RequestIdHeaders(error.request_id)};
  if (error.retry_ms.has_value()) {
    answer.headers.push_back(absl::StrCat("Retry-After: ", (*error.retry_ms + 999) / 1000));
    answer.headers.push_back(absl::StrCat("retry-after-ms: ", *error.retry_ms));
  }
  if (error.never_retry) answer.headers.push_back("x-should-retry: false");
  if (error.status == 401) answer.headers.push_back("WWW-Authenticate: Bearer");
  return answer;
}

std::vector<std::string> RequestIdHeaders(absl::string_view request_id) {
  return {absl::StrCat("x-request-id: ", request_id), absl::StrCat("request-id: ", request_id)};
}

}  // namespace annulus::server
