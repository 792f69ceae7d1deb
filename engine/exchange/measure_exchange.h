#ifndef ANNULUS_ENGINE_EXCHANGE_MEASURE_EXCHANGE_H_
#define ANNULUS_ENGINE_EXCHANGE_MEASURE_EXCHANGE_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/api/ring.h"
#include "engine/scheduler/cost_model.h"
#include "kernels/backend.h"
#include "kernels/registry.h"

namespace annulus {

// What exchange rates depend on.
struct ExchangeSetup {
  std::string device;   // description of the backend
  std::string kernels;  // name of the OpTable
  int ranks = 1;
  int threads = 1;  // all ranks together
  AttentionGeometry attention;
  RingTransport transport = RingTransport::kAuto;
};

// Measures the rates of a ring of this process with short runs on scratch pages. It sends messages
// of one and of many parts round the ring, and a large one if messages are copied. It attends 1, 4,
// 16, .. rows by one rank alone and by all, up to a page; more than 16 only while they keep a rank
// busy for less than 3 ms. Takes a few tenths of a second, and at most about 64 MB, which it frees.
// `setup.ranks` >= 2.
absl::StatusOr<ExchangeRates> MeasureExchange(const ExchangeSetup& setup, const OpTable& ops,
                                              Backend& backend);

// Measures the rates of attention of a rank that has its threads for itself: setup.ranks is 1. What
// is about messages keeps its default. Takes as long and as much memory.
absl::StatusOr<ExchangeRates> MeasureAttention(const ExchangeSetup& setup, const OpTable& ops,
                                               Backend& backend);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_EXCHANGE_MEASURE_EXCHANGE_H_
