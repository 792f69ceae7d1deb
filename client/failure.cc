#include "client/failure.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/strings/substitute.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace annulus::client {
namespace {

constexpr std::array<absl::string_view, 17> kCodeNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

google::rpc::Status Details(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) details.Clear();
  return details;
}

// "spec.sampling.top_p" -> "--top-p": the name under which the command line's user set it.
std::string FlagOfField(absl::string_view field) {
  absl::ConsumePrefix(&field, "spec.");
  if (!absl::ConsumePrefix(&field, "sampling.")) return std::string(field);
  return absl::StrCat("--", absl::StrReplaceAll(field, {{"_", "-"}}));
}

// Appends a description unless `lines` contains it: servers often repeat their message there.
void AppendOnce(absl::string_view before, absl::string_view description, absl::string_view after,
                std::string& lines) {
  if (description.empty() || absl::StrContains(lines, description)) return;
  absl::StrAppend(&lines, before, description, after);
}

void Append(const google::rpc::ErrorInfo& info, std::string& lines) {
  absl::StrAppend(&lines, "\n  reason: ", info.reason());
  for (const auto& [key, value] : info.metadata()) {
    absl::StrAppend(&lines, ", ", key, " ", value);
  }
  if (info.reason() == "CONTEXT_TOO_LONG") {
    absl::StrAppend(&lines,
                    "\n  'annulus ask', 'summarize' and 'extract' read documents of any "
                    "length, in parts");
  }
}

void Append(const google::rpc::BadRequest& bad, std::string& lines) {
  for (const auto& violation : bad.field_violations()) {
    absl::StrAppend(&lines, "\n  field: ", FlagOfField(violation.field()));
    AppendOnce(": ", violation.description(), "", lines);
  }
}

void Append(const google::rpc::ResourceInfo& resource, std::string& lines) {
  absl::StrAppend(&lines, "\n  ", resource.resource_type(), ": ", resource.resource_name());
  AppendOnce(" (", resource.description(), ")", lines);
}

void Append(const google::rpc::RetryInfo& retry, std::string& lines) {
  const double seconds = static_cast<double>(retry.retry_delay().seconds()) +
                         static_cast<double>(retry.retry_delay().nanos()) * 1e-9;
  absl::StrAppendFormat(&lines, "\n  try again in %.3g s", seconds);
}

template <typename Detail>
bool AppendIfIs(const google::protobuf::Any& any, std::string& lines) {
  Detail detail;
  if (!any.UnpackTo(&detail)) return false;
  Append(detail, lines);
  return true;
}

// Advice for a call that could not reach the server, or lost the connection.
struct Advice {
  absl::string_view sign;  // part of the message of gRPC 1.51 that this advice belongs to
  absl::string_view what;  // the advice; $0 stands for the server's address
};

constexpr char kSilent[] =
    "$0 accepts connections but does not answer: annulusd there is stopped or hangs, or another "
    "program listens. Its log says more; --connect-timeout SECONDS waits longer.";

constexpr char kAnother[] =
    "The service at $0 is not the gRPC API of annulusd: give its --listen address with --server "
    "HOST:PORT, not its --metrics address.";

// The first sign found in a message decides. Messages about failed attempts to connect come first,
// because their last words can also end a call under way.
constexpr Advice kAdvice[] = {
    {"wrong version number", "annulusd at $0 speaks without TLS: leave out the --tls flags."},
    {"certificate verify failed",
     "The certificate of $0 is not signed by an authority that this machine trusts: name the "
     "authority's certificate with --tls-ca FILE."},
    {"is not in peer certificate",
     "The certificate of $0 is for another host: give that host's name with --tls-server-name "
     "NAME."},
    {"Failed parsing HTTP/2", kAnother},
    {"http1.x server", kAnother},
    {"DNS resolution failed",
     "There is no such host. Give another address with --server HOST:PORT."},
    {"timed out before receiving SETTINGS", kSilent},
    {"Timeout occurred", kSilent},
    {"Handshake read failed",
     "$0 ended the TLS handshake, or never answered it. If annulusd there speaks without TLS, "
     "leave "
     "out the --tls flags; else it is stopped or hangs, or another program listens. Its log says "
     "more; --connect-timeout SECONDS waits longer."},
    {"connect() timed out",
     "Nothing answers at $0: the host is down, or a firewall blocks the connection. Give another "
     "address with --server HOST:PORT, or wait longer with --connect-timeout SECONDS."},
    {"failed to connect to all addresses; last error: UNAVAILABLE",
     "$0 closed the connection at once. If it uses TLS, add --tls, or --tls-ca FILE."},
    {"failed to connect",
     "Is annulusd running at $0? Give another address with --server HOST:PORT."},
    {"",
     "The connection to $0 was lost. Is annulusd still running there? Its log says why it ended."},
};

std::string AdviceFor(absl::string_view message, absl::string_view server) {
  for (const Advice& advice : kAdvice) {
    if (absl::StrContains(message, advice.sign)) return absl::Substitute(advice.what, server);
  }
  return "";
}

}  // namespace

int ExitCode(const grpc::Status& status) {
  return status.ok() ? 0 : 64 + static_cast<int>(status.error_code());
}

absl::string_view CodeName(grpc::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return index < kCodeNames.size() ? kCodeNames[index] : kCodeNames[grpc::StatusCode::UNKNOWN];
}

std::string DescribeFailure(const grpc::Status& status, absl::string_view server) {
  std::string message = status.error_message();
  // gRPC's own answer to a method that the server does not have.
  const bool unknown = message.empty() && status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
  if (unknown) {
    message = absl::StrCat("the annulusd at ", server,
                           " does not have this call: it is older than this program ('annulus "
                           "status' shows its version), or the address is its admin socket");
  }
  std::string lines = absl::StrCat(CodeName(status.error_code()), ": ",
                                   message.empty() ? "the server gave no reason" : message);
  const google::rpc::Status details = Details(status);
  for (const google::protobuf::Any& any : details.details()) {
    AppendIfIs<google::rpc::ErrorInfo>(any, lines) ||
        AppendIfIs<google::rpc::BadRequest>(any, lines) ||
        AppendIfIs<google::rpc::ResourceInfo>(any, lines) ||
        AppendIfIs<google::rpc::RetryInfo>(any, lines);
  }
  if (!details.details().empty()) return lines;
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    absl::StrAppend(&lines, "\n  ", AdviceFor(status.error_message(), server));
  } else if (absl::StartsWith(status.error_message(), "Received http2 header with status: ")) {
    // A web server or a proxy answered; gRPC mapped its HTTP status to a code of its own.
    absl::StrAppend(&lines, "\n  ", absl::Substitute(kAnother, server));
  }
  return lines;
}

std::optional<std::chrono::milliseconds> RetryDelay(const grpc::Status& status) {
  const google::rpc::Status details = Details(status);
  google::rpc::RetryInfo retry;
  for (const google::protobuf::Any& any : details.details()) {
    if (!any.UnpackTo(&retry)) continue;
    return std::chrono::milliseconds(retry.retry_delay().seconds() * 1000 +
                                     retry.retry_delay().nanos() / 1000000);
  }
  return std::nullopt;
}

std::string FailureReason(const grpc::Status& status) {
  const google::rpc::Status details = Details(status);
  google::rpc::ErrorInfo info;
  for (const google::protobuf::Any& any : details.details()) {
    if (any.UnpackTo(&info)) return info.reason();
  }
  return "";
}

}  // namespace annulus::client
