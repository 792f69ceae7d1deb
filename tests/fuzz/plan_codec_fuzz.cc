// Bytes of a peer as a plan: what is accepted can be sent on and comes back equal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "engine/codec/step_codec.h"
#include "tests/engine/codec/plan_example.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  annulus::CodecLimits limits = annulus::testing::Limits();
  limits.bytes = size_t{1} << 20;
  const auto plan =
      annulus::DecodePlan(absl::string_view(reinterpret_cast<const char*>(data), size), limits);
  if (!plan.ok()) return 0;
  const auto bytes = annulus::EncodePlan(*plan, limits);
  if (!bytes.ok()) abort();
  const auto again = annulus::DecodePlan(*bytes, limits);
  if (!again.ok() || annulus::EncodePlan(*again, limits).value() != *bytes) abort();
  return 0;
}
