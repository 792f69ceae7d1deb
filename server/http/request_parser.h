#ifndef ANNULUS_SERVER_HTTP_REQUEST_PARSER_H_
#define ANNULUS_SERVER_HTTP_REQUEST_PARSER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/http/http_message.h"

namespace annulus::server {

// Parses one HTTP/1.0 or HTTP/1.1 request from bytes as they come. Boost.Beast's basic_parser reads
// the syntax; this class limits what it accepts, and refuses what two servers could read
// differently (request smuggling): bodies with two lengths, with a transfer coding other than
// chunked, header lines that continue, bare line feeds. Keeps the head, and no byte of the body.
// Not thread-safe.
class RequestParser {
 public:
  struct Limits {
    size_t head_bytes;  // request line and headers; also a chunk's line, and trailers
    // The body with everything between its parts: chunk lines, their extensions, trailers.
    size_t body_bytes;
  };
  enum class Stage : uint8_t { kHead, kBody, kDone };
  // Takes the next part of the body. An error ends the request: see body_error.
  using BodyTaker = std::function<absl::Status(absl::string_view part)>;

  // `taker` is not called before stage() is kBody.
  RequestParser(const Limits& limits, BodyTaker taker);
  ~RequestParser();
  RequestParser(const RequestParser&) = delete;
  RequestParser& operator=(const RequestParser&) = delete;

  // Lowers the limit of the body. Call it at stage kBody, before the body is taken; a fault if the
  // body is known to be longer.
  void LimitBody(size_t bytes);

  // Takes bytes from the front and returns how many; the caller must offer the rest again with more
  // behind it. Stops after the head, so that the caller can look at it before the body is taken.
  // Takes nothing after a fault, or once the request is complete.
  size_t Take(absl::string_view bytes);

  Stage stage() const;
  // Set if the bytes are not a request that is accepted here. The rest of the connection cannot be
  // read then.
  const std::optional<HttpFault>& fault() const;
  // The error of the BodyTaker; OK if there was none. fault() is not set by it.
  const absl::Status& body_error() const;
  // Whether some byte of the request was taken or seen.
  bool begun() const;
  // The head, from stage kBody on. The caller may move it away.
  HttpRequest& request();
  // Whether the client waits for "100 Continue" before it sends the body.
  bool expects_continue() const;

 private:
  class Parser;
  const std::unique_ptr<Parser> parser_;  // keeps Beast's headers out of this one
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_REQUEST_PARSER_H_
