#ifndef ANNULUS_ENGINE_WORKERS_RING_AGREEMENT_H_
#define ANNULUS_ENGINE_WORKERS_RING_AGREEMENT_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/runner/rank_model.h"

namespace annulus {

// Of control.proto; a change that older builds would misread raises it.
inline constexpr uint32_t kWorkerProtocol = 5;

// What a coordinator may set for how long a worker may say nothing before it is lost.
inline constexpr std::chrono::milliseconds kLeastSilence{100};
inline constexpr std::chrono::hours kMostSilence{24};

// How often a worker says that it is alive, from a thread of its own, and its coordinator answers:
// an eighth of `silence`, but often enough that what beats tell is fresh.
constexpr std::chrono::milliseconds BeatPeriodOf(std::chrono::milliseconds silence) {
  return std::min(silence / 8, std::chrono::milliseconds(250));
}

// A worker that has heard nothing of its coordinator for this long is without one: it lets go
// before the coordinator could miss it.
constexpr std::chrono::milliseconds CoordinatorSilenceOf(std::chrono::milliseconds silence) {
  return silence * 3 / 4;
}

// How often a wait without a deadline looks around.
inline constexpr std::chrono::minutes kLookAround{10};

// "rank 2", "ranks 2 to 3".
std::string RanksText(int first, int count);

// "250 ms".
std::string TimeText(std::chrono::milliseconds time);

// What all processes of a ring must have in common: without it their ranks could not read each
// other's messages, or would compute other bits.
struct RingAgreement {
  std::string build;        // of the program
  std::string kernels;      // name of the kernel table
  std::string page_layout;  // PageLayoutOf
  std::string fingerprint;  // LoadedModel::fingerprint
};

// The layout of pages in words, different for different layouts: "64 tokens of 2 heads, bf16, ..".
std::string PageLayoutOf(const RankModel& model);

// FAILED_PRECONDITION, with both values and how to make them equal, if the other side differs.
absl::Status CheckAgreement(const RingAgreement& own, const RingAgreement& other);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_RING_AGREEMENT_H_
