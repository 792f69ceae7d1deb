#include "server/http/request_parser.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

// Each of these may come once: what a second one means depends on who reads it.
constexpr std::array<absl::string_view, 9> kSingle = {
    "authorization",     "content-length", "content-type",    "expect",   "host",
    "transfer-encoding", "origin",         "idempotency-key", "x-api-key"};

absl::string_view View(string_view text) { return {text.data(), text.size()}; }

}  // namespace

class RequestParser::Parser final : public http::basic_parser<true> {
 public:
  Parser(const Limits& limits, BodyTaker taker) : limits_(limits), taker_(std::move(taker)) {
    header_limit(static_cast<uint32_t>(limits.head_bytes));
    body_limit(limits.body_bytes);
  }

  size_t Take(absl::string_view bytes);

  Stage stage() const {
    if (!is_header_done()) return Stage::kHead;
    return is_done() ? Stage::kDone : Stage::kBody;
  }
  bool stopped() const { return fault_.has_value() || !body_error_.ok() || is_done(); }

  void LimitBody(size_t bytes) {
    limits_.body_bytes = std::min(limits_.body_bytes, bytes);
    const auto length = content_length();
    if (length && *length > limits_.body_bytes) NoteFault(http::error::body_limit);
  }

  Limits limits_;
  const BodyTaker taker_;
  HttpRequest request_;
  std::optional<HttpFault> fault_;
  absl::Status body_error_;
  bool begun_ = false;
  bool expects_continue_ = false;

 private:
  void Refuse(int status, std::string message, error_code& error) {
    fault_ = HttpFault{status, std::move(message)};
    error = http::error::bad_field;
  }
  void CountHead(absl::string_view bytes, size_t taken, error_code& error);
  void CountBody(size_t waiting, size_t taken, error_code& error);
  void NoteFault(const error_code& error);

  void on_request_impl(http::verb, string_view method, string_view target, int version,
                       error_code& error) override {
    request_.method = std::string(method);
    request_.path = PathOf(View(target));
    request_.query = QueryOf(View(target));
    request_.is_1_1 = version >= 11;
    if (request_.path.empty()) {
      Refuse(400, "the request has no path; send \"GET /metrics HTTP/1.1\" and headers", error);
    }
  }
  void on_field_impl(http::field, string_view name, string_view value, error_code& error) override;
  void on_header_impl(error_code& error) override;
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(string_view part, error_code& error) override {
    return TakeBody(View(part), error);
  }
  void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, string_view part, error_code& error) override {
    return TakeBody(View(part), error);
  }
  void on_finish_impl(error_code&) override {}

  size_t TakeBody(absl::string_view part, error_code& error) {
    body_error_ = taker_(part);
    if (!body_error_.ok()) error = http::error::body_limit;
    return part.size();
  }

  size_t head_bytes_ = 0;
  size_t body_bytes_ = 0;  // everything after the head
};

size_t RequestParser::Parser::Take(absl::string_view bytes) {
  if (!bytes.empty()) begun_ = true;
  size_t taken = 0;
  const Stage before = stage();
  while (!stopped() && stage() == before && taken < bytes.size()) {
    error_code error;
    const absl::string_view rest = bytes.substr(taken);
    const size_t count = put(boost::asio::const_buffer(rest.data(), rest.size()), error);
    taken += count;
    if (before == Stage::kHead) {
      CountHead(rest, count, error);
    } else {
      CountBody(rest.size() - count, count, error);
    }
    if (error == http::error::need_more) break;
    if (error) NoteFault(error);
  }
  return taken;
}

// Beast limits the head only while it comes in one piece, since it takes line after line.
void RequestParser::Parser::CountHead(absl::string_view bytes, size_t taken, error_code& error) {
  const absl::string_view lines = bytes.substr(0, taken);
  if (absl::StrContains(lines, "\n ") || absl::StrContains(lines, "\n\t")) {
    return Refuse(400, "a header continues on the next line", error);
  }
  head_bytes_ += taken;
  const size_t waiting = error == http::error::need_more ? bytes.size() - taken : 0;
  if (head_bytes_ + waiting > limits_.head_bytes) error = http::error::header_limit;
}

// `waiting`: bytes behind those taken. An incomplete chunk line or trailer stays with the caller.
void RequestParser::Parser::CountBody(size_t waiting, size_t taken, error_code& error) {
  body_bytes_ += taken;
  if (body_bytes_ > limits_.body_bytes) error = http::error::body_limit;
  if (error == http::error::need_more && waiting >= limits_.head_bytes) {
    error = http::error::header_limit;
  }
}

void RequestParser::Parser::NoteFault(const error_code& error) {
  if (fault_.has_value() || !body_error_.ok()) return;
  if (error == http::error::header_limit) {
    fault_ = HttpFault{431, absl::StrCat("the request line and headers may have at most ",
                                         limits_.head_bytes, " bytes here")};
  } else if (error == http::error::body_limit) {
    fault_ = HttpFault{413, absl::StrCat("the request body may have at most ", limits_.body_bytes,
                                         " bytes here; upload long texts as documents")};
  } else {
    fault_ = HttpFault{400, absl::StrCat("the bytes are not an HTTP/1.1 request (", error.message(),
                                         "); send \"GET /metrics HTTP/1.1\" and headers")};
  }
}

void RequestParser::Parser::on_field_impl(http::field, string_view name, string_view value,
                                          error_code& error) {
  if (is_header_done()) return;  // a trailer: nothing here needs any
  std::string lower = absl::AsciiStrToLower(View(name));
  const bool is_single = std::find(kSingle.begin(), kSingle.end(), lower) != kSingle.end();
  if (is_single && !request_.Find(lower).empty()) {
    return Refuse(400, absl::StrCat("there is a second header \"", lower, "\", and one is allowed"),
                  error);
  }
  // Beast takes other codings for a body of no bytes.
  if (lower == "transfer-encoding" &&
      (!request_.is_1_1 || !absl::EqualsIgnoreCase(View(value), "chunked"))) {
    return Refuse(501, "transfer codings other than \"chunked\" are not supported", error);
  }
  if (lower == "content-length" &&
      (value.empty() || !std::all_of(value.begin(), value.end(), absl::ascii_isdigit))) {
    return Refuse(400, "Content-Length is not a number", error);
  }
  request_.headers.emplace_back(std::move(lower), std::string(value));
}

void RequestParser::Parser::on_header_impl(error_code& error) {
  const bool has_length = !request_.Find("content-length").empty();
  const bool is_chunked = !request_.Find("transfer-encoding").empty();
  if (has_length && is_chunked) {
    return Refuse(400, "the body has two lengths: Content-Length and Transfer-Encoding", error);
  }
  const absl::string_view expected = request_.Find("expect");
  expects_continue_ = absl::EqualsIgnoreCase(expected, "100-continue") && request_.is_1_1;
  if (!expected.empty() && !absl::EqualsIgnoreCase(expected, "100-continue")) {
    return Refuse(417, "only \"Expect: 100-continue\" is supported", error);
  }
  request_.has_body = is_chunked || (has_length && request_.Find("content-length") != "0");
  request_.keep_alive = request_.is_1_1 && keep_alive();
}

RequestParser::RequestParser(const Limits& limits, BodyTaker taker)
    : parser_(std::make_unique<Parser>(limits, std::move(taker))) {}
RequestParser::~RequestParser() = default;

void RequestParser::LimitBody(size_t bytes) { parser_->LimitBody(bytes); }
size_t RequestParser::Take(absl::string_view bytes) { return parser_->Take(bytes); }
RequestParser::Stage RequestParser::stage() const { return parser_->stage(); }
const std::optional<HttpFault>& RequestParser::fault() const { return parser_->fault_; }
const absl::Status& RequestParser::body_error() const { return parser_->body_error_; }
bool RequestParser::begun() const { return parser_->begun_; }
HttpRequest& RequestParser::request() { return parser_->request_; }
bool RequestParser::expects_continue() const { return parser_->expects_continue_; }

}  // namespace annulus::server
