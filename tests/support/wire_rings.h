#ifndef ANNULUS_TESTS_SUPPORT_WIRE_RINGS_H_
#define ANNULUS_TESTS_SUPPORT_WIRE_RINGS_H_

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/ring/wire/ucx_carrier.h"
#include "engine/ring/wire/wire_ring.h"
#include "kernels/base/sanitizers.h"
#include "tests/support/memory_carrier.h"

namespace annulus::testing {

enum class WireKind { kMemory, kUcx };

inline absl::StatusOr<std::unique_ptr<Carrier>> OpenCarrier(WireKind kind) {
  if (kind == WireKind::kUcx) return OpenUcxCarrier("lo");
  return std::make_unique<MemoryCarrier>();
}

// Why wires of this kind cannot be tested here; OK if they can.
inline absl::Status CanTest(WireKind kind) {
  return kind == WireKind::kUcx ? OpenUcxCarrier("lo").status() : absl::OkStatus();
}

// A ring whose ranks are threads of this process, with a wire each.
inline absl::StatusOr<std::unique_ptr<WireRing>> OpenWireRing(WireKind kind, int ranks,
                                                              const Clock& clock = Clock::Real()) {
  WireRingSetup setup;
  setup.ranks = ranks;
  setup.local.resize(ranks);
  std::iota(setup.local.begin(), setup.local.end(), 0);
  setup.open = [kind] { return OpenCarrier(kind); };
  setup.exchange = [](uint64_t, std::vector<std::string> own) { return own; };
  return WireRing::Create(std::move(setup), clock);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_WIRE_RINGS_H_
