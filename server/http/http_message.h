#ifndef ANNULUS_SERVER_HTTP_HTTP_MESSAGE_H_
#define ANNULUS_SERVER_HTTP_HTTP_MESSAGE_H_

// The part of HTTP/1.1 (RFC 9112) that scrapers and probes need: one request without a body, one
// response, then the connection is closed.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

struct HttpRequest {
  std::string method;         // as sent: "GET"
  std::string path;           // "/metrics", without the query
  std::string authorization;  // value of that header; empty: none
  // Names in the client's certificate, which the listener has verified; empty: no certificate.
  std::vector<std::string> certificate_names = {};
  // Requests of one round had all come before the first of them was answered, so what is collected
  // for one is fresh for all.
  uint64_t round = 0;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string header = {};  // one additional header, "Name: value"; empty: none
};

// Returns the position after the empty line that ends a request's head; npos if it has not come
// yet.
size_t EndOfHead(absl::string_view bytes);

// Parses a request's head, which must end with its empty line. INVALID_ARGUMENT with a message for
// the client.
absl::StatusOr<HttpRequest> ParseHead(absl::string_view head);

// Formats a response. `with_body` must be false for the response to HEAD.
std::string Serialize(const HttpAnswer& answer, bool with_body);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_MESSAGE_H_
