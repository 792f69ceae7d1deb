#ifndef ANNULUS_BENCH_REPORT_RING_MODE_H_
#define ANNULUS_BENCH_REPORT_RING_MODE_H_

#include <array>
#include <utility>

#include "engine/api.h"

namespace annulus::bench {

// The names of ring modes in flags and rows.
inline constexpr std::array<std::pair<const char*, RingMode>, 3> kRingModes = {
    {{"auto", RingMode::kAuto}, {"pass-kv", RingMode::kPassKv}, {"pass-q", RingMode::kPassQ}}};

constexpr const char* RingModeName(RingMode mode) {
  return kRingModes[static_cast<size_t>(mode)].first;
}
static_assert(kRingModes[static_cast<size_t>(RingMode::kPassKv)].second == RingMode::kPassKv);
static_assert(kRingModes[static_cast<size_t>(RingMode::kPassQ)].second == RingMode::kPassQ);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_REPORT_RING_MODE_H_
