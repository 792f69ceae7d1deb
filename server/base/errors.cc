#include "server/base/errors.h"

#include <optional>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "engine/api.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/error_details.pb.h"

namespace annulus::server {
namespace {

using absl::StatusCode;

constexpr char kReasonPayload[] = "annulus/reason";      // name of a v1::ErrorReason
constexpr char kResourcePayload[] = "annulus/resource";  // type, line feed, name
constexpr char kMetadataPrefix[] = "annulus/metadata/";  // then the key
constexpr char kReasonNamePrefix[] = "ERROR_REASON_";
constexpr char kDomain[] = "annulus";
constexpr size_t kLongestMessage = 1024;
constexpr size_t kLongestShownName = 64;
constexpr size_t kLongestOfSeveral = 160;  // sentences about a field each

std::string Printable(absl::string_view text, size_t longest) {
  std::string clean(text.substr(0, longest));
  for (char& c : clean) {
    if (c == '\n' || c == '\t') c = ' ';
    if (c < ' ' || c > '~') c = '?';
  }
  if (text.size() > longest) clean += "...";
  return clean;
}

std::optional<std::string> Payload(const absl::Status& status, const char* url) {
  const auto payload = status.GetPayload(url);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

// The reason of a status that carries none. Such a code always has the same meaning, except for
// RESOURCE_EXHAUSTED, which the payloads distinguish.
v1::ErrorReason DefaultReason(const absl::Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return v1::ERROR_REASON_INVALID_FIELD;
    case StatusCode::kCancelled:
      return v1::ERROR_REASON_CANCELLED;
    case StatusCode::kDeadlineExceeded:
      return v1::ERROR_REASON_DEADLINE;
    case StatusCode::kOutOfRange:
      return v1::ERROR_REASON_CONTEXT_TOO_LONG;
    case StatusCode::kUnavailable:
      return v1::ERROR_REASON_RANK_FAILED;
    case StatusCode::kResourceExhausted:
      if (Payload(status, kLimitPayload) == "reader") return v1::ERROR_REASON_SLOW_READER;
      if (Payload(status, kLimitPayload)) return v1::ERROR_REASON_QUOTA_EXCEEDED;
      return Payload(status, kRetryPayload) ? v1::ERROR_REASON_QUEUE_FULL
                                            : v1::ERROR_REASON_MEMORY_TOO_SMALL;
    default:
      return v1::ERROR_REASON_INTERNAL;
  }
}

void SetReason(absl::Status& status, v1::ErrorReason reason) {
  absl::string_view name = v1::ErrorReason_Name(reason);
  absl::ConsumePrefix(&name, kReasonNamePrefix);
  status.SetPayload(kReasonPayload, absl::Cord(name));
}

std::string ReasonName(const absl::Status& status) {
  if (auto name = Payload(status, kReasonPayload)) return *name;
  absl::string_view name = v1::ErrorReason_Name(DefaultReason(status));
  absl::ConsumePrefix(&name, kReasonNamePrefix);
  return std::string(name);
}

// The fields that an error is about, each with its sentence: see JoinFieldErrors.
std::vector<std::pair<std::string, std::string>> Violations(absl::string_view fields,
                                                            absl::string_view message) {
  const std::vector<std::string> names = absl::StrSplit(fields, '\n');
  const std::vector<std::string> sentences = absl::StrSplit(message, '\n');
  if (names.size() == 1 || names.size() != sentences.size()) {
    return {{std::string(fields), std::string(message)}};
  }
  std::vector<std::pair<std::string, std::string>> violations;
  for (size_t i = 0; i < names.size(); ++i) violations.emplace_back(names[i], sentences[i]);
  return violations;
}

void AddErrorInfo(const absl::Status& status, google::rpc::Status& wire) {
  google::rpc::ErrorInfo info;
  info.set_domain(kDomain);
  info.set_reason(ReasonName(status));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& value) {
    if (absl::ConsumePrefix(&url, kMetadataPrefix)) {
      (*info.mutable_metadata())[std::string(url)] = std::string(value);
    }
  });
  wire.add_details()->PackFrom(info);
}

void AddDetails(const absl::Status& status, google::rpc::Status& wire) {
  AddErrorInfo(status, wire);
  if (const auto field = Payload(status, kFieldPayload)) {
    google::rpc::BadRequest bad_request;
    const auto violations = Violations(*field, status.message());
    const size_t longest = violations.size() == 1 ? kLongestMessage : kLongestOfSeveral;
    for (const auto& [name, sentence] : violations) {
      auto* violation = bad_request.add_field_violations();
      violation->set_field(Printable(name, kLongestShownName));
      violation->set_description(Printable(sentence, longest));
    }
    wire.add_details()->PackFrom(bad_request);
  }
  int64_t milliseconds = 0;
  const auto retry = Payload(status, kRetryPayload);
  if (retry && absl::SimpleAtoi(*retry, &milliseconds)) {
    google::rpc::RetryInfo info;
    *info.mutable_retry_delay() =
        google::protobuf::util::TimeUtil::MillisecondsToDuration(milliseconds);
    wire.add_details()->PackFrom(info);
  }
  if (const auto resource = Payload(status, kResourcePayload)) {
    const size_t split = resource->find('\n');
    google::rpc::ResourceInfo info;
    info.set_resource_type(resource->substr(0, split));
    info.set_resource_name(Printable(resource->substr(split + 1), kLongestShownName));
    info.set_description(wire.message());
    wire.add_details()->PackFrom(info);
  }
}

// The message as clients see it: of several violations, one after the other.
std::string ShownMessage(const absl::Status& status) {
  const auto fields = Payload(status, kFieldPayload);
  const bool several = fields.has_value() && absl::StrContains(*fields, '\n');
  const std::string message(status.message());
  return Printable(several ? absl::StrReplaceAll(message, {{"\n", "; "}}) : message,
                   kLongestMessage);
}

// The same error with another message, about `field`.
absl::Status About(const absl::Status& status, absl::string_view field, absl::string_view message) {
  absl::Status about(status.code(), message);
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& value) { about.SetPayload(url, value); });
  about.SetPayload(kFieldPayload, absl::Cord(field));
  return about;
}

}  // namespace

absl::Status FieldError(absl::string_view field, absl::string_view message) {
  absl::Status status =
      absl::InvalidArgumentError(absl::StrCat(field, field.empty() ? "" : ": ", message));
  status.SetPayload(kFieldPayload, absl::Cord(field));
  return status;
}

absl::Status MoveField(const absl::Status& status, absl::string_view field) {
  absl::string_view text = status.message();
  const auto old = Payload(status, kFieldPayload);
  const bool is_named =
      old.has_value() && !old->empty() && absl::ConsumePrefix(&text, absl::StrCat(*old, ": "));
  return About(status, field, is_named ? absl::StrCat(field, ": ", text) : std::string(text));
}

absl::Status MoveFields(const absl::Status& status,
                        absl::FunctionRef<std::string(absl::string_view)> place) {
  const auto fields = Payload(status, kFieldPayload);
  if (!fields.has_value()) return status;
  std::vector<std::string> names, sentences;
  for (const auto& [name, sentence] : Violations(*fields, status.message())) {
    absl::string_view text = sentence;
    const bool is_named = !name.empty() && absl::ConsumePrefix(&text, absl::StrCat(name, ": "));
    names.push_back(place(name));
    sentences.push_back(is_named ? absl::StrCat(names.back(), ": ", text) : sentence);
  }
  return About(status, absl::StrJoin(names, "\n"), absl::StrJoin(sentences, "\n"));
}

absl::Status WithField(const absl::Status& status, absl::string_view field) {
  return About(status, field, absl::StrCat(field, ": ", status.message()));
}

absl::Status NameIfTooLarge(absl::Status status, absl::string_view field) {
  const bool has_field = status.GetPayload(kFieldPayload).has_value();
  if (!absl::IsOutOfRange(status) || has_field || field.empty()) return status;
  return WithField(status, field);
}

absl::Status ResourceError(absl::StatusCode code, v1::ErrorReason reason, absl::string_view type,
                           absl::string_view name, absl::string_view message) {
  absl::Status status = ReasonError(code, reason, message);
  status.SetPayload(kResourcePayload, absl::Cord(absl::StrCat(type, "\n", name)));
  return status;
}

absl::Status ReasonError(absl::StatusCode code, v1::ErrorReason reason, absl::string_view message,
                         const ErrorMetadata& metadata) {
  absl::Status status(code, message);
  SetReason(status, reason);
  return WithMetadata(std::move(status), metadata);
}

absl::Status WithMetadata(absl::Status status, const ErrorMetadata& metadata) {
  for (const auto& [key, value] : metadata) {
    status.SetPayload(absl::StrCat(kMetadataPrefix, key), absl::Cord(value));
  }
  return status;
}

absl::Status AnswerTooLargeError(size_t needed, size_t available, absl::string_view field) {
  return NameIfTooLarge(
      ReasonError(absl::StatusCode::kOutOfRange, v1::ERROR_REASON_ANSWER_TOO_LARGE,
                  absl::StrCat("the answer needs at least ", needed,
                               " bytes, and one message holds at most ", available,
                               "; ask for less at a time, or start the server with a larger "
                               "--max-message-size"),
                  {{"needed", absl::StrCat(needed)}, {"available", absl::StrCat(available)}}),
      field);
}

absl::Status DeadlinePassedError() {
  return absl::DeadlineExceededError(
      "the call did not complete before its deadline; allow more time, or ask for less");
}

absl::Status ClientLeftError() {
  return absl::CancelledError("the client cancelled the call or disconnected");
}

absl::Status WithRetry(absl::Status status, int64_t milliseconds) {
  status.SetPayload(kRetryPayload, absl::Cord(absl::StrCat(milliseconds)));
  return status;
}

std::optional<std::string> RetryPushback(const absl::Status& status) {
  if (auto retry = Payload(status, kRetryPayload)) return retry;
  // Others may be resolved at an unknown time: pins end, and deleted documents count until no
  // request reads them.
  const bool lasts =
      ReasonName(status) == "MESSAGE_TOO_LARGE" ||
      (absl::IsResourceExhausted(status) && Payload(status, kLimitPayload) == "kv_bytes");
  return lasts ? std::optional<std::string>("-1") : std::nullopt;
}

bool IsQueueFull(const absl::Status& status) {
  return absl::IsResourceExhausted(status) && ReasonName(status) == "QUEUE_FULL";
}

bool HidesMessage(const absl::Status& status) {
  return !status.ok() && ReasonName(status) == "INTERNAL";
}

google::rpc::Status ToWireStatus(const absl::Status& status, absl::string_view request_id) {
  google::rpc::Status wire;
  if (status.ok()) return wire;
  if (HidesMessage(status)) {
    wire.set_code(static_cast<int>(StatusCode::kInternal));
    wire.set_message("internal error; the server's log says why");
    AddErrorInfo(status, wire);
  } else {
    wire.set_code(static_cast<int>(status.code()));
    wire.set_message(ShownMessage(status));
    AddDetails(status, wire);
  }
  if (!request_id.empty()) {
    google::rpc::RequestInfo info;
    info.set_request_id(std::string(request_id));
    wire.add_details()->PackFrom(info);
  }
  return wire;
}

std::string QuoteName(absl::string_view name) {
  return absl::StrCat("\"", Printable(name, kLongestShownName), "\"");
}

}  // namespace annulus::server
