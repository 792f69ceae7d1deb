#include "server/http/api_service.h"

#include <arpa/inet.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/config/loopback.h"
#include "server/http/files/download_exchange.h"
#include "server/http/files/upload_exchange.h"
#include "server/http/generation_exchange.h"
#include "server/http/http_errors.h"
#include "server/http/page/page_files.h"
#include "server/http/routes.h"
#include "server/http/work_exchange.h"

namespace annulus::server {
namespace {

constexpr size_t kMostHeadBytes = size_t{16} << 10;

// Of a body with a file: the file, and the form around it.
size_t MostUploadBytes(const ServerConfig& config) {
  constexpr size_t kFormBytes = size_t{64} << 10;
  return std::max(config.documents.max_document_bytes + kFormBytes, config.max_message_bytes);
}

// Refuses a request that no call is made of: there is nothing to count, and no line in the log.
HttpAnswer Refusal(ErrorForm form, int status, absl::string_view code, std::string message,
                   std::vector<std::string> headers = {}) {
  const char* const type = status >= 500 ? "server_error" : "invalid_request_error";
  HttpAnswer answer = ErrorAnswer({.status = status,
                                   .type = type,
                                   .code = std::string(code),
                                   .message = std::move(message),
                                   .request_id = ServiceContext::NewRequestId()},
                                  form);
  answer.headers.insert(answer.headers.end(), headers.begin(), headers.end());
  return answer;
}

// "HOST:PORT" and "[IPV6]:PORT" without the port.
absl::string_view HostOf(absl::string_view authority) {
  const size_t colon = authority.rfind(':');
  const size_t bracket = authority.rfind(']');
  const bool has_port =
      colon != absl::string_view::npos && (bracket == absl::string_view::npos || colon > bracket);
  return has_port ? authority.substr(0, colon) : authority;
}

// Whether a request for this host is meant for a server on the loopback address `own`. A web page's
// own name may lead to it too (DNS rebinding).
bool IsHostHere(absl::string_view host, absl::string_view own) {
  return IsLoopbackAddress(absl::StrCat(HostOf(host), ":80")) ||
         absl::EqualsIgnoreCase(HostOf(host), HostOf(own));
}

// Whether the host is an address, which no web page's own name can be.
bool IsNumeric(absl::string_view host) {
  std::string text(HostOf(host));
  if (text.size() > 2 && text.front() == '[') text = text.substr(1, text.size() - 2);
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// Whether the request comes from the page that this server itself serves. Another page can take its
// place only if its own name leads here (DNS rebinding): over TLS this server has no certificate
// for that name, and without TLS only names that --http has are taken for this server's.
bool IsFromOwnPage(const HttpRequest& request, const ServerConfig& config) {
  if (!config.http_page) return false;
  const bool has_tls = !config.tls_certificate.empty();
  const absl::string_view host = request.Find("host");
  return absl::EqualsIgnoreCase(request.Find("origin"),
                                absl::StrCat(has_tls ? "https://" : "http://", host)) &&
         (has_tls || IsHostHere(host, config.http) || IsNumeric(host));
}

bool IsJson(absl::string_view content_type) {
  const absl::string_view type = content_type.substr(0, content_type.find(';'));
  return absl::EqualsIgnoreCase(absl::StripAsciiWhitespace(type), "application/json");
}

// The methods that routes have for this path: "GET, POST".
std::string MethodsOf(absl::string_view path) {
  std::string methods;
  for (const Route& route : AllRoutes()) {
    if (route.path == path) absl::StrAppend(&methods, methods.empty() ? "" : ", ", route.method);
  }
  return methods;
}

// Why a body of this type cannot be the route's; OK if it can.
absl::Status CheckContentType(const Route& route, absl::string_view content_type) {
  if (route.method != "POST") return absl::OkStatus();
  if (std::holds_alternative<FileUpload>(route.handler)) {
    return MultipartReader::BoundaryOf(content_type).status();
  }
  if (IsJson(content_type)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the body must be JSON: send \"Content-Type: application/json\"");
}

// The headers that let a web page of this origin read an answer.
std::vector<std::string> OriginHeaders(absl::string_view origin) {
  if (origin.empty()) return {};
  return {absl::StrCat("Access-Control-Allow-Origin: ", origin), "Vary: Origin",
          "Access-Control-Expose-Headers: x-request-id, request-id, retry-after-ms, retry-after"};
}

HttpAnswer Preflight(absl::string_view origin) {
  HttpAnswer answer{.status = 204, .headers = OriginHeaders(origin)};
  answer.headers.emplace_back("Access-Control-Allow-Methods: GET, POST, DELETE");
  answer.headers.emplace_back("Access-Control-Allow-Headers: *, Authorization");
  answer.headers.emplace_back("Access-Control-Max-Age: 600");
  return answer;
}

// Whether an SDK says that it has sent this request before. Both SDKs do so without a key.
bool IsRepeated(const HttpRequest& request) {
  int count = 0;
  return absl::SimpleAtoi(request.Find("x-stainless-retry-count"), &count) && count > 0;
}

// "a%2Fb" -> "a/b". Nothing if a "%" is not followed by two hexadecimal digits.
std::optional<std::string> PercentDecoded(absl::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%') {
      decoded.push_back(text[at]);
      continue;
    }
    const absl::string_view digits = text.substr(at + 1, 2);
    if (digits.size() < 2 || !absl::ascii_isxdigit(digits[0]) || !absl::ascii_isxdigit(digits[1])) {
      return std::nullopt;
    }
    decoded.append(absl::HexStringToBytes(digits));
    at += 2;
  }
  return decoded;
}

// The query of a replay: "from=N", or nothing.
absl::StatusOr<uint64_t> ReadFrom(absl::string_view query) {
  uint64_t from = 0;
  if (query.empty()) return from;
  if (absl::ConsumePrefix(&query, "from=") && absl::SimpleAtoi(query, &from)) return from;
  return FieldError("from",
                    "must be the number of the first event to send, counted from 0; there "
                    "is no other parameter");
}

CallContext ToCall(absl::string_view method, HttpRequest& request, const std::string& peer) {
  CallContext call{.method = method,
                   .peer = peer,
                   .connection = request.connection,
                   .headers = std::move(request.headers),
                   .certificate_names = std::move(request.certificate_names)};
  // Anthropic's clients may send their token so.
  const std::string* const key = call.FindHeader("x-api-key");
  if (key != nullptr && call.FindHeader("authorization") == nullptr) {
    call.headers.emplace_back("authorization", absl::StrCat("Bearer ", *key));
  }
  if (const std::string* const parent = call.FindHeader("traceparent")) {
    call.trace = ParseTraceParent(*parent);
  }
  return call;
}

// Ends a call that did not begin.
HttpAnswer EndCall(ServiceContext& context, const CallContext& call, const absl::Status& status,
                   ErrorForm errors, bool is_generation) {
  RequestBalance& balance = context.metrics.balance();
  if (is_generation) balance.Offer();
  const CallEnd end = context.Conclude(call, status);
  if (is_generation) balance.Settle(static_cast<absl::StatusCode>(end.status.code()));
  return ErrorAnswer(ToHttpError(end), errors);
}

HttpAnswer EndAnswered(ServiceContext& context, const CallContext& call,
                       absl::StatusOr<HttpAnswer> made, ErrorForm errors) {
  if (!made.ok()) return EndCall(context, call, made.status(), errors, false);
  const CallEnd end = context.Conclude(call, absl::OkStatus());
  for (std::string& header : RequestIdHeaders(end.request_id)) {
    made->headers.push_back(std::move(header));
  }
  return *std::move(made);
}

}  // namespace

ApiService::ApiService(ServiceContext& context)
    : context_(context),
      on_loopback_(IsLoopbackAddress(context.config.http)),
      // Always one body.
      body_shares_(context.prompts->limit(),
                   BodyBytes::MemoryOf(context.config.max_message_bytes)) {}

uint64_t ApiService::AddPeer(const std::string& peer) { return context_.peers.Add(peer, {}); }

void ApiService::RemovePeer(uint64_t number) { context_.peers.Remove(number); }

bool ApiService::IsCondemned(uint64_t number) { return context_.peers.IsCondemned(number); }

// Keeps web pages out: see the class.
std::optional<HttpAnswer> ApiService::CheckSource(const HttpRequest& request) const {
  const ErrorForm form = ErrorFormOf(request);
  const absl::string_view origin = request.Find("origin");
  const auto& allowed = context_.config.http_origins;
  if (!origin.empty() && !IsFromOwnPage(request, context_.config) &&
      std::find(allowed.begin(), allowed.end(), origin) == allowed.end()) {
    return Refusal(form, 403, "origin_not_allowed",
                   absl::StrCat("web pages of ", QuoteName(origin),
                                " may not use this server; name them in its --http-origins"));
  }
  const absl::string_view host = request.Find("host");
  if (host.empty()) {
    if (!request.is_1_1) return std::nullopt;
    return Refusal(form, 400, "invalid_request", "the request has no header \"Host\"");
  }
  if (!on_loopback_ || IsHostHere(host, context_.config.http)) return std::nullopt;
  return Refusal(form, 403, "host_not_allowed",
                 absl::StrCat("this server serves only this machine, not the host ",
                              QuoteName(host), "; use localhost"));
}

std::optional<HttpAnswer> ApiService::CheckRoute(const HttpRequest& request,
                                                 const Route* route) const {
  const ErrorForm form = ErrorFormOf(request);
  if (route == nullptr) {
    return Refusal(form, 404, "not_found",
                   absl::StrCat("there is nothing at ", QuoteName(request.path)));
  }
  const bool reads = request.method == "HEAD" && route->method == "GET" &&
                     (std::holds_alternative<AnswerNow>(route->handler) ||
                      std::holds_alternative<PageFileRoute>(route->handler));
  if (request.method != route->method && !reads) {
    const std::string methods = MethodsOf(route->path);
    return Refusal(form, 405, "method_not_allowed",
                   absl::StrCat(request.path, " takes ", methods, " only"),
                   {absl::StrCat("Allow: ", methods)});
  }
  const absl::Status type = CheckContentType(*route, request.Find("content-type"));
  if (!type.ok()) {
    return Refusal(form, 415, "unsupported_media_type", std::string(type.message()));
  }
  // The handshake only checks a certificate that is there.
  if (!context_.config.tls_client_ca.empty() && request.certificate_names.empty() &&
      !route->for_probes) {
    return Refusal(form, 401, "certificate_required",
                   "this server needs a client certificate that its --tls-client-ca trusts");
  }
  return std::nullopt;
}

// Counts a request that no call is made of with those whose caller is not known.
HttpAnswer ApiService::Refused(const HttpRequest& request, HttpAnswer answer) {
  context_.peers.CountRefused(request.connection, std::chrono::steady_clock::now());
  return answer;
}

HttpService::Opening ApiService::Open(HttpRequest request, const std::string& peer,
                                      std::shared_ptr<HttpReply> reply) {
  if (auto refusal = CheckSource(request)) return Refused(request, *std::move(refusal));
  const std::string origin(request.Find("origin"));
  if (request.method == "OPTIONS" && !origin.empty()) return Preflight(origin);
  std::vector<std::string> headers = OriginHeaders(origin);
  Opening opening = OpenRoute(std::move(request), headers, peer, std::move(reply));
  if (HttpAnswer* const answer = std::get_if<HttpAnswer>(&opening)) {
    answer->headers.insert(answer->headers.end(), headers.begin(), headers.end());
  }
  return opening;
}

HttpService::Opening ApiService::OpenRoute(HttpRequest request,
                                           const std::vector<std::string>& headers,
                                           const std::string& peer,
                                           std::shared_ptr<HttpReply> reply) {
  absl::string_view encoded;
  const Route* route = FindRoute(request.method, request.path, encoded);
  const bool is_page = route != nullptr && std::holds_alternative<PageFileRoute>(route->handler);
  const PageFile* const page = is_page ? FindPageFile(encoded) : nullptr;
  if (is_page && (page == nullptr || !context_.config.http_page)) route = nullptr;
  if (auto refusal = CheckRoute(request, route)) return Refused(request, *std::move(refusal));
  const ErrorForm errors = ErrorFormOf(request);
  const std::optional<std::string> rest = PercentDecoded(encoded);
  if (!rest.has_value()) {
    return Refused(request, Refusal(errors, 400, "invalid_request",
                                    "the path has a % that no two hexadecimal digits follow"));
  }
  const auto boundary = MultipartReader::BoundaryOf(request.Find("content-type"));
  GenerationExchange::Asked asked{.idempotency_key = std::string(request.Find("idempotency-key")),
                                  .repeats = IsRepeated(request),
                                  .is_1_1 = request.is_1_1};
  CallContext call = ToCall(route->path, request, peer);
  const FormReader* const reader = std::get_if<FormReader>(&route->handler);
  const bool replays = std::holds_alternative<ReplayRoute>(route->handler);
  const absl::Status admitted = [&]() -> absl::Status {
    if (!route->for_probes) ANNULUS_RETURN_IF_ERROR(context_.Admit(call));
    if (!replays) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(const uint64_t from, ReadFrom(request.query));
    asked.replay = {*rest, from};
    return absl::OkStatus();
  }();
  if (!admitted.ok()) {
    return EndCall(context_, call, admitted, errors, reader != nullptr || replays);
  }
  if (const AnswerNow* const answer = std::get_if<AnswerNow>(&route->handler)) {
    return EndAnswered(context_, call, (*answer)(context_, *rest), errors);
  }
  if (page != nullptr) {
    const std::string* const known = call.FindHeader("if-none-match");
    return EndAnswered(context_, call, AnswerPageFile(*page, known == nullptr ? "" : *known),
                       errors);
  }
  ReplyTerms terms{errors, request.keep_alive, headers, body_shares_.Of(ClientOf(call))};
  if (const WorkHandler* const handler = std::get_if<WorkHandler>(&route->handler)) {
    WorkExchange::Asked work{.handler = *handler,
                             .rest = *rest,
                             .query = std::move(request.query),
                             .terms = std::move(terms)};
    return std::make_shared<WorkExchange>(context_, std::move(call), std::move(work),
                                          std::move(reply));
  }
  if (std::holds_alternative<FileUpload>(route->handler)) {
    UploadExchange::Asked upload{.boundary = *boundary, .terms = std::move(terms)};
    return UploadExchange::Create(context_, std::move(call), std::move(upload), std::move(reply));
  }
  if (std::holds_alternative<FileDownload>(route->handler)) {
    DownloadExchange::Asked download{.id = *rest, .terms = std::move(terms)};
    return std::make_shared<DownloadExchange>(context_, std::move(call), std::move(download),
                                              std::move(reply));
  }
  if (reader != nullptr) asked.reader = *reader;
  asked.terms = std::move(terms);
  return std::make_shared<GenerationExchange>(context_, std::move(call), std::move(asked),
                                              std::move(reply));
}

HttpAnswer ApiService::OnFault(const HttpFault& fault) {
  return Refusal(ErrorForm::kOpenAi, fault.status, "invalid_request", fault.message);
}

absl::StatusOr<std::unique_ptr<HttpListener>> StartApiHttp(ServiceContext& context,
                                                           ApiService& service,
                                                           std::unique_ptr<TlsStreams> tls) {
  const ServerConfig& config = context.config;
  HttpListener::Options options{
      .address = config.http,
      .max_connections = static_cast<size_t>(config.max_connections),
      .limits = {.request = {kMostHeadBytes, MostUploadBytes(config)},
                 .whole_body = config.max_message_bytes,
                 // The engine ends a request whose client does not read for slow_reader_timeout.
                 // The client then has the same time again to read the error.
                 .unread_time = 2 * config.engine.slow_reader_timeout,
                 .heartbeat = config.http_heartbeat}};
  auto listener = HttpListener::Start(std::move(options), service, context.prompts, std::move(tls));
  if (listener.ok()) return listener;
  return absl::UnavailableError(absl::StrCat("cannot serve HTTP on ", listener.status().message(),
                                             "; choose another address with --http"));
}

}  // namespace annulus::server
