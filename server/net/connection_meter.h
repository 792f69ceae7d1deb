#ifndef ANNULUS_SERVER_NET_CONNECTION_METER_H_
#define ANNULUS_SERVER_NET_CONNECTION_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"

namespace annulus::server {

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
  uint32_t stream() const;
  size_t size() const { return size_; }         // bytes of its payload
  bool complete() const { return left_ == 0; }  // whether the whole payload has come

 private:
  std::array<uint8_t, 9> header_{};
  size_t header_bytes_ = 0;  // how many bytes of header_ have come
  size_t size_ = 0;
  size_t left_ = 0;
};

// Estimates the memory that gRPC keeps for one connection, from the frames in both directions.
// Counts, for each open stream, the call, its headers and the bytes of a message that is not
// complete yet; the memory of complete messages is counted by their calls (CallMemory). Also limits
// the size of a header block (HEADERS and its CONTINUATION frames). Uses about 120 bytes for each
// open stream.
class ConnectionMeter {
 public:
  // gRPC 1.51 was measured to keep 13 KiB for a call without a message. For headers, it keeps up to
  // 160 times the bytes sent, because one byte can refer to a header that was sent before; but at
  // most 618 KiB for a call, because it accepts 128 KiB of unpacked headers.
  static constexpr size_t kStreamBytes = size_t{16} << 10;
  static constexpr size_t kHeaderFactor = 160;
  static constexpr size_t kMostHeadersKept = size_t{640} << 10;
  // The least rate at which a call's first message must arrive, unless it is complete within the
  // time limit.
  static constexpr double kLeastBytesPerSecond = 1024;

  explicit ConnectionMeter(size_t most_block_bytes) : most_block_bytes_(most_block_bytes) {}

  // Takes the next bytes, which may be cut anywhere. Returns false if a header block exceeds the
  // limit, if the bytes are not frames of a gRPC client, or if far more streams are open than a
  // client may open. Must not be called again after that.
  bool TakeFromClient(absl::string_view bytes, SteadyTime now);
  void TakeFromServer(absl::string_view bytes);

  // Estimated bytes that gRPC keeps for this connection now.
  size_t held_bytes() const { return held_; }

  // Returns true if the first message of some call has arrived more slowly than
  // kLeastBytesPerSecond over a period of `limit`. `held_up` says that gRPC is not reading, so the
  // delay is not the client's fault: all periods start again. Call it periodically. Later messages
  // are subject to the time limits of their calls.
  bool Trickles(SteadyTime now, std::chrono::milliseconds limit, bool held_up);

 private:
  // A stream's position in its current message: a prefix (a flag and four bytes of length), then
  // that many bytes.
  struct Message {
    std::array<uint8_t, 5> prefix{};
    size_t prefix_bytes = 0;
    size_t left = 0;
    size_t held = 0;
  };
  struct Stream {
    Message message;
    size_t kept = 0;  // bytes for the call and its headers
    bool awaits_first = true;
    SteadyTime since;  // start of the period that Trickles measures
    size_t came = 0;   // bytes that have come since
  };

  bool TakeClientFrame(SteadyTime now);
  void OpenStream(SteadyTime now);
  void KeepHeaders(size_t bytes);
  void TakeData(Stream& stream, absl::string_view data);
  void Release(Message& message);
  void EndMessages(Stream& stream);
  void Forget(uint32_t stream);

  const size_t most_block_bytes_;
  FrameReader from_client_;
  FrameReader from_server_;
  size_t preface_ = 0;      // how many bytes of the connection preface have come
  size_t block_bytes_ = 0;  // bytes of the current header block
  uint32_t newest_stream_ = 0;
  absl::flat_hash_map<uint32_t, Stream> open_;
  size_t held_ = 0;      // the sum of `held` and `kept` of all streams
  size_t awaiting_ = 0;  // streams that await their first message
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CONNECTION_METER_H_
