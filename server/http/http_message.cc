#include "server/http/http_message.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace annulus::server {
namespace {

absl::string_view Phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 401:
      return "Unauthorized";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

bool IsToken(absl::string_view text) {
  constexpr absl::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains(kMarks, c);
  });
}

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isgraph(c); });
}

// "/metrics?x" and "http://host:1/metrics" -> "/metrics". Empty if the target has no path.
std::string PathOf(absl::string_view target) {
  if (absl::StartsWithIgnoreCase(target, "http://")) {
    target.remove_prefix(7);
    const size_t slash = target.find('/');
    target = slash == absl::string_view::npos ? "/" : target.substr(slash);
  }
  target = target.substr(0, target.find_first_of("?#"));
  return absl::StartsWith(target, "/") ? std::string(target) : std::string();
}

absl::Status NotHttp(absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, "; send \"GET /metrics HTTP/1.1\" and headers\n"));
}

}  // namespace

size_t EndOfHead(absl::string_view bytes) {
  // A recipient may accept a single LF as the end of a line (RFC 9112, section 2.2).
  const size_t strict = bytes.find("\n\r\n");
  const size_t loose = bytes.find("\n\n");
  if (strict == absl::string_view::npos && loose == absl::string_view::npos) return strict;
  return strict < loose ? strict + 3 : loose + 2;
}

absl::StatusOr<HttpRequest> ParseHead(absl::string_view head) {
  std::vector<absl::string_view> lines = absl::StrSplit(head, '\n');
  for (absl::string_view& line : lines) absl::ConsumeSuffix(&line, "\r");
  const std::vector<absl::string_view> words = absl::StrSplit(lines[0], ' ');
  if (words.size() != 3 || !IsToken(words[0]) || !IsPrintable(words[1]) ||
      (words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0")) {
    return NotHttp("the first line is not an HTTP/1.1 request");
  }
  HttpRequest request{std::string(words[0]), PathOf(words[1]), ""};
  if (request.path.empty()) return NotHttp("the request names no path");
  bool authorized = false;
  for (size_t i = 1; i < lines.size() && !lines[i].empty(); ++i) {
    const size_t colon = lines[i].find(':');
    const absl::string_view name = lines[i].substr(0, colon);
    if (colon == absl::string_view::npos || !IsToken(name)) {
      return NotHttp("a header is not \"Name: value\"");
    }
    if (!absl::EqualsIgnoreCase(name, "authorization")) continue;
    if (std::exchange(authorized, true)) {
      return NotHttp("there is a second authorization header, and one is allowed");
    }
    request.authorization = std::string(absl::StripAsciiWhitespace(lines[i].substr(colon + 1)));
  }
  return request;
}

std::string Serialize(const HttpAnswer& answer, bool with_body) {
  return absl::StrCat("HTTP/1.1 ", answer.status, " ", Phrase(answer.status),
                      "\r\nContent-Type: ", answer.content_type,
                      "\r\nContent-Length: ", answer.body.size(), "\r\nConnection: close\r\n",
                      answer.header.empty() ? "" : absl::StrCat(answer.header, "\r\n"), "\r\n",
                      with_body ? answer.body : "");
}

}  // namespace annulus::server
