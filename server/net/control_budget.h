#ifndef ANNULUS_SERVER_NET_CONTROL_BUDGET_H_
#define ANNULUS_SERVER_NET_CONTROL_BUDGET_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/api.h"
#include "server/net/allowance.h"
#include "server/net/frame_reader.h"

namespace annulus::server {

// Limits the frames that one client sends without a message: PING, SETTINGS, RST_STREAM, PRIORITY,
// WINDOW_UPDATE, GOAWAY, CONTINUATION, empty DATA and unknown ones. Each costs gRPC work, and some
// an answer that it keeps without a bound until the client reads. Every connection has a small
// level of its own, and draws more from one that all connections of its address share, so that a
// new connection is no new allowance, and a flood takes nothing from others at its address. Message
// bytes, in both directions, raise the levels, because a client with more traffic needs more such
// frames, for example to open its window again. Not thread-safe.
class ControlBudget {
 public:
  // Answers to PING and SETTINGS that the client may be owed. gRPC clients wait for one answer
  // before they send the next; keepalive owes one.
  static constexpr int kMostUnanswered = 64;

  // The level of a connection. A client begins with about five such frames.
  static constexpr double kOwnBurst = 100;
  static constexpr double kOwnPerSecond = 50;
  // The level of an address. A second's worth costs gRPC about a millisecond, a full level 20.
  static constexpr double kBurst = 20'000;
  static constexpr double kPerSecond = 1'000;
  // A control frame with more payload than this counts as several.
  static constexpr double kBytesPerFrame = 64;
  // Message bytes, in either direction, that allow one more frame.
  static constexpr double kMessageBytesPerFrame = 64;
  // For each DATA frame to the client, which it may answer with WINDOW_UPDATE for the stream and
  // for the connection, and with a PING that measures the bandwidth.
  static constexpr double kPerAnswerFrame = 4;
  // A reset of an open call costs as much as the call that gRPC has set up for it, and gRPC keeps
  // that call for a while. All connections of an address may reset 1,250 at once, more than the
  // 1,024 that one may have open, and 62 a second for ever.
  static constexpr double kResetCost = 16;

  // `shared`: the level of the client's address.
  explicit ControlBudget(std::shared_ptr<Allowance> shared) : shared_(std::move(shared)) {}
  static std::shared_ptr<Allowance> OfAddress() {
    return std::make_shared<Allowance>(kBurst, kPerSecond);
  }

  // The call that a frame belongs to: none under way, one under way, or one that it begins.
  enum class Call : uint8_t { kNone, kOpen, kNew };

  // Takes the header of a frame from the client. Returns false if there are too many.
  bool TakeFromClient(const FrameReader& frame, Call call, SteadyTime now);
  void TakeFromServer(const FrameReader& frame);

 private:
  void Earn(double frames);
  bool TakeAnswer(const FrameReader& frame);

  Allowance own_{kOwnBurst, kOwnPerSecond};
  const std::shared_ptr<Allowance> shared_;
  int unanswered_ = 0;  // PING and SETTINGS of the client without an answer
  int asked_ = 0;       // the same, of the server
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CONTROL_BUDGET_H_
