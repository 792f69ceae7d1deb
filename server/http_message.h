#ifndef ANNULUS_SERVER_HTTP_MESSAGE_H_
#define ANNULUS_SERVER_HTTP_MESSAGE_H_

// HTTP/1.1 as far as scrapes and probes need it: one request without a body, one answer, then the
// connection ends (RFC 9112).

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

struct HttpRequest {
  std::string method;         // as it was sent: "GET"
  std::string path;           // "/metrics", without what follows a question mark
  std::string authorization;  // value of that header; empty: none
  // In the certificate that the client showed, which the listener has verified; empty: none.
  std::vector<std::string> certificate_names = {};
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::string header = {};  // one more line, "Name: value"; empty: none
};

// Position behind the empty line that ends a request's head, or npos while it is not there yet.
size_t EndOfHead(absl::string_view bytes);

// `head` ends with its empty line. INVALID_ARGUMENT with a sentence for the client.
absl::StatusOr<HttpRequest> ParseHead(absl::string_view head);

// The bytes to send. `with_body` is false for the answer to HEAD.
std::string Serialize(const HttpAnswer& answer, bool with_body);

}  // namespace annulus

#endif  // ANNULUS_SERVER_HTTP_MESSAGE_H_
