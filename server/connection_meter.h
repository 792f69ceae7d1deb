#ifndef ANNULUS_SERVER_CONNECTION_METER_H_
#define ANNULUS_SERVER_CONNECTION_METER_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Splits one direction of an HTTP/2 connection into frames (RFC 9113, section 4.1).
class FrameReader {
 public:
  enum class Piece : uint8_t { kNone, kHeader, kPayload };

  // Takes the next piece off `bytes`, which may be cut anywhere: the header of a frame, or some of
  // its payload, then in `payload`.
  Piece Next(absl::string_view& bytes, absl::string_view& payload);

  // The frame whose header came last.
  uint8_t type() const { return header_[3]; }
  uint8_t flags() const { return header_[4]; }
  uint32_t stream() const;
  size_t size() const { return size_; }  // of its payload
  bool complete() const { return left_ == 0; }

 private:
  std::array<uint8_t, 9> header_{};
  size_t header_bytes_ = 0;  // of header_ that have come
  size_t size_ = 0;
  size_t left_ = 0;
};

// Counts what one client makes gRPC keep, from the frames that both send: the bytes of a header
// block under way (HEADERS and its CONTINUATION frames), and those of messages that are not
// complete yet. What a message takes from then on is held by its call (CallMemory). Takes about 60
// bytes for each open stream.
class ConnectionMeter {
 public:
  explicit ConnectionMeter(size_t most_block_bytes) : most_block_bytes_(most_block_bytes) {}

  // Takes the next bytes, cut anywhere. False: a header block is longer than the limit, the frames
  // are not those of a gRPC client, or many more streams are open than a client may open. Nothing
  // may be taken after that.
  bool TakeFromClient(absl::string_view bytes);
  void TakeFromServer(absl::string_view bytes);

  size_t unfinished_bytes() const { return unfinished_; }

 private:
  // Where a stream is in its message: a flag, four bytes of length, and so many bytes.
  struct Message {
    std::array<uint8_t, 5> prefix{};
    size_t prefix_bytes = 0;
    size_t left = 0;
    size_t held = 0;
  };

  bool TakeClientFrame();
  void TakeData(Message& message, absl::string_view data);
  void Release(Message& message);
  void Forget(uint32_t stream);

  const size_t most_block_bytes_;
  FrameReader from_client_;
  FrameReader from_server_;
  size_t preface_ = 0;      // bytes of it that have come
  size_t block_bytes_ = 0;  // of the header block under way
  uint32_t newest_stream_ = 0;
  absl::flat_hash_map<uint32_t, Message> open_;  // by stream
  size_t unfinished_ = 0;                        // the sum of `held`
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONNECTION_METER_H_
