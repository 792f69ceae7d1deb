#ifndef ANNULUS_SERVER_REQUEST_BALANCE_H_
#define ANNULUS_SERVER_REQUEST_BALANCE_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "engine/api.h"

namespace annulus {

// Counts the calls that ask for a generation (Generate, StreamGenerate, PrefillDocument) and the
// questions of AskMany, by their outcome. At any time, offered = completed + rejected + cancelled +
// failed + open. Thread-safe.
class RequestBalance {
 public:
  enum class Fate : uint8_t {
    kCompleted,
    kRejected,   // the request was wrong, or a quota or the load did not allow it
    kCancelled,  // the client cancelled it, or its deadline passed
    kFailed,     // UNAVAILABLE, INTERNAL, UNKNOWN, DATA_LOSS, ABORTED: not caused by the client
  };
  static Fate FateOf(absl::StatusCode code);

  // Call each once per call: Offer when it arrives, Settle when its status is known.
  void Offer();
  void Settle(absl::StatusCode code);

  // Returns the counts, all from the same moment.
  std::vector<MetricFamily> Collect() const;

 private:
  static constexpr size_t kFates = 4;

  mutable std::mutex mutex_;
  uint64_t offered_ = 0;
  std::array<uint64_t, kFates> settled_{};
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_REQUEST_BALANCE_H_
