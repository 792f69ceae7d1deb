#ifndef ANNULUS_TESTS_SERVER_HTTP2_PEER_H_
#define ANNULUS_TESTS_SERVER_HTTP2_PEER_H_

// A client that speaks HTTP/2 frame by frame (RFC 9113), to do what no client library would.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::server {

// Types and flags in use.
enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;

// What a client says first.
inline constexpr char kHttp2Preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Frame(FrameType type, uint8_t flags, uint32_t stream, absl::string_view payload);

// Headers of a gRPC call as an HPACK block (RFC 7541) without tables or Huffman codes.
std::string CallHeaders(absl::string_view method);
// One more header for such a block.
std::string HeaderField(absl::string_view name, absl::string_view value);

// Five bytes and the message. `length` is what the bytes say, if not the message's own.
std::string GrpcMessage(absl::string_view message);
std::string GrpcMessage(absl::string_view message, uint8_t compressed, uint32_t length);

// Frames of one whole call, as they are sent at once.
std::string CallFrames(uint32_t stream, absl::string_view method, absl::string_view message);

// One connection. No call blocks for longer than its limit; sending gives up after 5 s.
class Http2Peer {
 public:
  // Connects and says the preface. `window`: bytes of each answer that the server may send before
  // it is asked for more, which this peer never does. Absent: says nothing.
  explicit Http2Peer(const std::string& address, std::optional<uint32_t> window = 65'535);
  ~Http2Peer();
  Http2Peer(const Http2Peer&) = delete;
  Http2Peer& operator=(const Http2Peer&) = delete;

  // False when the other side takes no more.
  bool Send(absl::string_view bytes);

  // Reads until a frame of this type for this stream (of the connection: 0) has come. False at the
  // end of the connection, or after `limit`.
  bool WaitForFrame(FrameType type, uint32_t stream, std::chrono::milliseconds limit);
  // Reads until the other side has closed the connection.
  bool WaitForClose(std::chrono::milliseconds limit);
  // Everything that was read, if WaitForFrame has not passed it yet.
  const std::string& unread() const { return received_; }

  // Leaves by a reset of the connection instead of an orderly end.
  void Reset();

 private:
  enum class Reading { kSome, kNothing, kClosed };
  Reading ReadSome(std::chrono::steady_clock::time_point until);
  bool TakeFrame(FrameType type, uint32_t stream);

  int descriptor_;
  std::string received_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_HTTP2_PEER_H_
