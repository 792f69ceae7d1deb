// Bytes of a peer as a plan: what is accepted can be sent on and comes back equal.
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "engine/codec/step_codec.h"
#include "tests/fuzz/plan_limits.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const annulus::CodecLimits limits = annulus::testing::FuzzedPlanLimits();
  const auto plan =
      annulus::DecodePlan(absl::string_view(reinterpret_cast<const char*>(data), size), limits);
  if (!plan.ok()) return 0;
  const auto bytes = annulus::EncodePlan(*plan, limits);
  if (!bytes.ok()) abort();
  const auto again = annulus::DecodePlan(*bytes, limits);
  if (!again.ok() || annulus::EncodePlan(*again, limits).value() != *bytes) abort();
  return 0;
}
