#include "server/http/http_message.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace annulus::server {
namespace {

absl::string_view Phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 529:
      return "Overloaded";
    default:
      return "Status";
  }
}

std::string Decoded(absl::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    const absl::string_view digits = text.substr(1, 2);
    const bool is_code = text.front() == '%' && digits.size() == 2 &&
                         absl::ascii_isxdigit(digits[0]) && absl::ascii_isxdigit(digits[1]);
    decoded += is_code ? absl::HexStringToBytes(digits) : std::string(1, text.front());
    text.remove_prefix(is_code ? 3 : 1);
  }
  return decoded;
}

bool HasBody(int status) { return status != 204 && status != 304; }

}  // namespace

absl::string_view HttpRequest::Find(absl::string_view name) const {
  for (const auto& [header, value] : headers) {
    if (header == name) return value;
  }
  return "";
}

std::string PathOf(absl::string_view target) {
  if (absl::StartsWithIgnoreCase(target, "http://")) {
    target.remove_prefix(7);
    const size_t slash = target.find('/');
    target = slash == absl::string_view::npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find_first_of("?#"));
  return absl::StartsWith(target, "/") ? std::string(target) : std::string();
}

std::string QueryOf(absl::string_view target) {
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  return mark == absl::string_view::npos ? "" : std::string(target.substr(mark + 1));
}

std::vector<std::pair<std::string, std::string>> ParametersOf(absl::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  for (const absl::string_view parameter : absl::StrSplit(query, '&', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(parameter, absl::MaxSplits('=', 1));
    parameters.emplace_back(Decoded(sides.first), Decoded(sides.second));
  }
  return parameters;
}

std::string SerializeHead(const HttpAnswer& answer, BodyFrame frame, bool keep_alive) {
  std::string head = absl::StrCat("HTTP/1.1 ", answer.status, " ", Phrase(answer.status), "\r\n");
  if (HasBody(answer.status)) {
    absl::StrAppend(&head, "Content-Type: ", answer.content_type, "\r\n");
    if (frame == BodyFrame::kLength) {
      absl::StrAppend(&head, "Content-Length: ", answer.body.size(), "\r\n");
    } else if (frame == BodyFrame::kChunked) {
      head += "Transfer-Encoding: chunked\r\n";
    }
  }
  if (!keep_alive) head += "Connection: close\r\n";
  for (const std::string& header : answer.headers) absl::StrAppend(&head, header, "\r\n");
  head += "\r\n";
  return head;
}

std::string Serialize(const HttpAnswer& answer, bool keep_alive, bool with_body) {
  return absl::StrCat(SerializeHead(answer, BodyFrame::kLength, keep_alive),
                      with_body && HasBody(answer.status) ? answer.body : "");
}

std::string Chunk(absl::string_view bytes) {
  return absl::StrCat(absl::Hex(bytes.size()), "\r\n", bytes, "\r\n");
}

}  // namespace annulus::server
