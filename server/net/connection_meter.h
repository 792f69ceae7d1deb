#ifndef ANNULUS_SERVER_NET_CONNECTION_METER_H_
#define ANNULUS_SERVER_NET_CONNECTION_METER_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/net/call_pace.h"
#include "server/net/control_budget.h"
#include "server/net/cut_off.h"
#include "server/net/frame_reader.h"

namespace annulus::server {

// Estimates the memory that gRPC keeps for one connection, from the frames in both directions.
// Counts, for each open stream, the call, its headers and the bytes of a message that is not
// complete yet; the memory of complete messages is counted by their calls (CallMemory). Also limits
// the size of a header block (HEADERS and its CONTINUATION frames), the number of open streams, and
// frames without a message (ControlBudget). Uses about 120 bytes for each open stream.
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

  // Streams that a client may have open. gRPC announces 1,024, but enforces that only once the
  // client has acknowledged it; the rest is for clients that do not wait. A stream is open until
  // the relay has read its end from gRPC, so unread answers count too.
  static constexpr size_t kMostOpenStreams = 1'280;

  // What all connections of the client's address share; see ControlBudget and CallPace.
  struct Shared {
    std::shared_ptr<Allowance> frames = ControlBudget::OfAddress();
    std::shared_ptr<Allowance> calls = CallPace::OfAddress();
  };

  explicit ConnectionMeter(size_t most_block_bytes) : ConnectionMeter(most_block_bytes, Shared()) {}
  ConnectionMeter(size_t most_block_bytes, const Shared& shared)
      : most_block_bytes_(most_block_bytes), control_(shared.frames), pace_(shared.calls) {}

  // Takes the next bytes, which may be cut anywhere. Returns how many of them may be passed on. If
  // that is not all, the next call must wait (CallPace): the rest must be passed to this function
  // again later, with more behind it or not. nullopt if the connection must be closed: refusal()
  // says why. Must not be called again after that.
  std::optional<size_t> TakeFromClient(absl::string_view bytes, SteadyTime now);
  void TakeFromServer(absl::string_view bytes);
  // Calls that gRPC has reset since this was called last. It resets those that it refuses itself,
  // such as ones without a path, and those that end before the client's messages do.
  int TakeResets() { return std::exchange(resets_, 0); }
  // kHeaders: a header block exceeds the limit, or the bytes are not frames of a gRPC client.
  // kFlood: there are too many open streams, or frames without a message.
  CutOff refusal() const { return refusal_; }

  size_t open_calls() const { return open_.size(); }
  // Estimated bytes that gRPC keeps for this connection now.
  size_t held_bytes() const { return calls_ + messages_; }
  // Of these, the bytes for open calls and their headers.
  size_t call_bytes() const { return calls_; }

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

  bool TakePreface(absl::string_view& bytes);
  bool TakeClientFrame(SteadyTime now);
  bool Opens() const;
  bool Refuse(CutOff why);
  void OpenStream(SteadyTime now);
  void KeepHeaders(size_t bytes);
  void TakeData(Stream& stream, absl::string_view data);
  void Release(Message& message);
  void EndMessages(Stream& stream);
  void Forget(uint32_t stream);

  const size_t most_block_bytes_;
  FrameReader from_client_;
  FrameReader from_server_;
  ControlBudget control_;
  CallPace pace_;
  // The frame in from_client_ waits: it has not been counted, and the last byte of its header has
  // not been passed on.
  bool waits_ = false;
  CutOff refusal_ = CutOff::kHeaders;
  size_t preface_ = 0;      // how many bytes of the connection preface have come
  size_t block_bytes_ = 0;  // bytes of the current header block
  uint32_t newest_stream_ = 0;
  absl::flat_hash_map<uint32_t, Stream> open_;
  size_t calls_ = 0;     // the sum of `kept` of all streams
  size_t messages_ = 0;  // the sum of `held` of all streams
  int resets_ = 0;       // see TakeResets
  size_t awaiting_ = 0;  // streams that await their first message
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CONNECTION_METER_H_
