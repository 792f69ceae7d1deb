#ifndef ANNULUS_SERVER_REQUEST_BALANCE_H_
#define ANNULUS_SERVER_REQUEST_BALANCE_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "engine/api.h"

namespace annulus {

// What became of the calls that asked for generations (Generate, StreamGenerate, PrefillDocument),
// and of the questions of AskMany. At every moment offered = completed + rejected + cancelled +
// failed + open. Thread-safe.
class RequestBalance {
 public:
  enum class Fate : uint8_t {
    kCompleted,
    kRejected,   // what the client asked for, or its quota, or the load did not allow it
    kCancelled,  // by its client, or its deadline passed
    kFailed,     // UNAVAILABLE, INTERNAL, UNKNOWN, DATA_LOSS, ABORTED: not by the client's doing
  };
  static Fate FateOf(absl::StatusCode code);

  // Each call: once when it arrives, once when its status is settled.
  void Offer();
  void Settle(absl::StatusCode code);

  // All of one moment.
  std::vector<MetricFamily> Collect() const;

 private:
  static constexpr size_t kFates = 4;

  mutable std::mutex mutex_;
  uint64_t offered_ = 0;
  std::array<uint64_t, kFates> settled_{};
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_REQUEST_BALANCE_H_
