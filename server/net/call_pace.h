#ifndef ANNULUS_SERVER_NET_CALL_PACE_H_
#define ANNULUS_SERVER_NET_CALL_PACE_H_

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/api.h"
#include "server/net/allowance.h"

namespace annulus::server {

// Paces the calls that one connection begins, because gRPC queues calls without a bound that come
// faster than it works. Every answer allows its connection one more call, so a client that waits
// for answers is not held up, however fast it is. What a connection begins beyond that, it draws
// from an allowance of its address. Then calls wait; none is refused. Not thread-safe.
class CallPace {
 public:
  // Calls that a connection may begin before the first answer.
  static constexpr double kFirst = 4;
  // Calls that a connection may begin at once after that many answers.
  static constexpr double kMostOwn = 64;
  // Calls beyond these that all connections of an address may begin at once, more than the 1,024
  // that one may have open, and in each second: gRPC takes about 50 microseconds for one.
  static constexpr double kBurst = 1'280;
  static constexpr double kPerSecond = 1'000;

  // `shared`: the allowance of the client's address.
  explicit CallPace(std::shared_ptr<Allowance> shared) : shared_(std::move(shared)) {}
  static std::shared_ptr<Allowance> OfAddress() {
    return std::make_shared<Allowance>(kBurst, kPerSecond);
  }

  // Returns false if the next call must wait.
  bool Begin(SteadyTime now) {
    if (own_ < 1) return shared_->Take(1, now);
    own_ -= 1;
    return true;
  }
  void Answered() { own_ = std::min(own_ + 1, kMostOwn); }

 private:
  double own_ = kFirst;
  const std::shared_ptr<Allowance> shared_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CALL_PACE_H_
