#ifndef ANNULUS_SERVER_METRICS_REQUEST_BALANCE_H_
#define ANNULUS_SERVER_METRICS_REQUEST_BALANCE_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "engine/api.h"

namespace annulus::server {

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
  // If `status`, with which a call or question ends now, is a refusal for overload (IsQueueFull),
  // notes how long it took from `arrived` on.
  void NoteIfRefused(const absl::Status& status, SteadyTime arrived);

  // Returns the counts, all from the same moment, and the times of refusals.
  std::vector<MetricFamily> Collect() const;

 private:
  static constexpr size_t kFates = 4;
  // Upper bounds in seconds. Clients are promised a refusal within 50 ms.
  static constexpr std::array<double, 10> kRefusalBounds = {0.001, 0.0025, 0.005, 0.01, 0.025,
                                                            0.05,  0.1,    0.25,  1,    10};

  MetricFamily CollectRefusalsLocked() const;

  mutable std::mutex mutex_;
  uint64_t offered_ = 0;
  std::array<uint64_t, kFates> settled_{};
  std::array<uint64_t, kRefusalBounds.size() + 1> refusals_{};  // by the bound, not cumulative
  double refusal_seconds_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_METRICS_REQUEST_BALANCE_H_
