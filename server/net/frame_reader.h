#ifndef ANNULUS_SERVER_NET_FRAME_READER_H_
#define ANNULUS_SERVER_NET_FRAME_READER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace annulus::server {

// Types and flags of HTTP/2 frames (RFC 9113, section 6).
namespace http2 {
inline constexpr uint8_t kData = 0;
inline constexpr uint8_t kHeaders = 1;
inline constexpr uint8_t kReset = 3;
inline constexpr uint8_t kSettings = 4;
inline constexpr uint8_t kPing = 6;
inline constexpr uint8_t kContinuation = 9;

inline constexpr uint8_t kAck = 1;  // of PING and SETTINGS
inline constexpr uint8_t kEndStream = 1;
inline constexpr uint8_t kEndHeaders = 4;
inline constexpr uint8_t kPadded = 8;
}  // namespace http2

// Moves bytes from the front of `bytes` into `array`, of which the first `have` are filled.
template <size_t kSize>
void Fill(std::array<uint8_t, kSize>& array, size_t& have, absl::string_view& bytes) {
  for (; have < kSize && !bytes.empty(); bytes.remove_prefix(1)) {
    array[have++] = static_cast<uint8_t>(bytes.front());
  }
}

// Splits one direction of an HTTP/2 connection into frames (RFC 9113, section 4.1).
class FrameReader {
 public:
  enum class Piece : uint8_t { kNone, kHeader, kPayload };

  // Removes the next piece from the front of `bytes`, which may be cut anywhere: the header of a
  // frame (kHeader), or part of its payload (kPayload), which is returned in `payload`. kNone: more
  // bytes are needed.
  Piece Next(absl::string_view& bytes, absl::string_view& payload);

  // These describe the frame whose header came last.
  uint8_t type() const { return header_[3]; }
  uint8_t flags() const { return header_[4]; }
  bool has(uint8_t flag) const { return (flags() & flag) != 0; }
  uint32_t stream() const;
  size_t size() const { return size_; }         // bytes of its payload
  bool complete() const { return left_ == 0; }  // whether the whole payload has come

 private:
  std::array<uint8_t, 9> header_{};
  size_t header_bytes_ = 0;  // how many bytes of header_ have come
  size_t size_ = 0;
  size_t left_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_FRAME_READER_H_
