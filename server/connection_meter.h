#ifndef ANNULUS_SERVER_CONNECTION_METER_H_
#define ANNULUS_SERVER_CONNECTION_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"

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

// Counts what one client makes gRPC keep, from the frames that both send: for each stream that is
// open, the call itself and its headers, and the bytes of messages that are not complete yet. What
// a message takes from then on is held by its call (CallMemory). And the bytes of the header block
// under way (HEADERS and its CONTINUATION frames). Takes about 120 bytes for each open stream.
class ConnectionMeter {
 public:
  // What gRPC 1.51 was measured to keep: of a call without a message 13 KiB; of headers up to 160
  // times what was sent, since one byte can stand for a header that was sent before, and at most
  // 618 KiB for a call, since it takes 128 KiB of headers unpacked.
  static constexpr size_t kStreamBytes = size_t{16} << 10;
  static constexpr size_t kHeaderFactor = 160;
  static constexpr size_t kMostHeadersKept = size_t{640} << 10;
  // A call's first message comes this fast at least, or is whole before the time limit.
  static constexpr double kLeastBytesPerSecond = 1024;

  explicit ConnectionMeter(size_t most_block_bytes) : most_block_bytes_(most_block_bytes) {}

  // Takes the next bytes, cut anywhere. False: a header block is longer than the limit, the frames
  // are not those of a gRPC client, or many more streams are open than a client may open. Nothing
  // may be taken after that.
  bool TakeFromClient(absl::string_view bytes, SteadyTime now);
  void TakeFromServer(absl::string_view bytes);

  // What gRPC keeps for the client now.
  size_t held_bytes() const { return held_; }

  // Called now and then. True: some call has waited `limit` for its first message to go on by
  // kLeastBytesPerSecond. The time begins anew for all of them if `held_up`, which says that gRPC
  // is not reading: then the client is not to blame. Later messages have the time limits of their
  // calls.
  bool Trickles(SteadyTime now, std::chrono::milliseconds limit, bool held_up);

 private:
  // Where a stream is in its message: a flag, four bytes of length, and so many bytes.
  struct Message {
    std::array<uint8_t, 5> prefix{};
    size_t prefix_bytes = 0;
    size_t left = 0;
    size_t held = 0;
  };
  struct Stream {
    Message message;
    size_t kept = 0;  // for the call and its headers
    bool awaits_first = true;
    // Of the time that Trickles looks at: since when, and what has come in it.
    SteadyTime since;
    size_t came = 0;
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
  size_t preface_ = 0;      // bytes of it that have come
  size_t block_bytes_ = 0;  // of the header block under way
  uint32_t newest_stream_ = 0;
  absl::flat_hash_map<uint32_t, Stream> open_;
  size_t held_ = 0;      // the sum of `held` and `kept`
  size_t awaiting_ = 0;  // streams that await their first message
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONNECTION_METER_H_
