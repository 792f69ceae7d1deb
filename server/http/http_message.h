#ifndef ANNULUS_SERVER_HTTP_HTTP_MESSAGE_H_
#define ANNULUS_SERVER_HTTP_HTTP_MESSAGE_H_

// The head of a request in HTTP/1.1 (RFC 9112), and the bytes of answers.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::server {

struct HttpRequest {
  using Header = std::pair<std::string, std::string>;  // name in lower case, value

  std::string method;                // as sent: "GET"
  std::string path;                  // "/metrics", without the query
  std::string query = {};            // "a=1&b=2"; empty: none
  std::vector<Header> headers = {};  // in order
  bool is_1_1 = true;                // false: HTTP/1.0
  bool keep_alive = false;           // whether the client wants to use the connection again
  bool has_body = false;
  uint64_t connection = 0;  // see HttpService::AddPeer
  // Names in the client's certificate, which the listener has verified; empty: no certificate.
  std::vector<std::string> certificate_names = {};
  // Of HttpResponder: requests of one round had all come before the first of them was answered, so
  // what is collected for one is fresh for all.
  uint64_t round = 0;

  // The value of the first header with this name, in lower case; empty if there is none.
  absl::string_view Find(absl::string_view name) const;
};

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
  std::vector<std::string> headers = {};  // additional ones, each "Name: value"
};

// Why a request cannot be read: the status to answer with, and a sentence for the client.
struct HttpFault {
  int status;
  std::string message;
};

// "/metrics?x" and "http://host:1/metrics" -> "/metrics". Empty if the target has no path.
std::string PathOf(absl::string_view target);
// "/v1/streams/a?from=3" -> "from=3". Empty if there is none.
std::string QueryOf(absl::string_view target);

// The parameters of a query, decoded, in order: "a=%20&b" -> {"a", " "}, {"b", ""}. A "%" that is
// not followed by two digits stands for itself.
std::vector<std::pair<std::string, std::string>> ParametersOf(absl::string_view query);

// How the length of an answer's body is told.
enum class BodyFrame : uint8_t {
  kLength,      // Content-Length
  kChunked,     // chunks; see Chunk
  kUntilClose,  // the end of the connection, for HTTP/1.0
  kGiven,       // Content-Length among the additional headers
};

// Formats the head of an answer. `answer.body` gives the length for kLength, and is not formatted.
std::string SerializeHead(const HttpAnswer& answer, BodyFrame frame, bool keep_alive);

// Formats an answer with its length. `with_body` must be false for the answer to HEAD.
std::string Serialize(const HttpAnswer& answer, bool keep_alive, bool with_body);

// Formats a chunk of a body; `bytes` must not be empty.
std::string Chunk(absl::string_view bytes);
// Ends a chunked body.
inline constexpr char kLastChunk[] = "0\r\n\r\n";

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_HTTP_MESSAGE_H_
