#ifndef ANNULUS_BENCH_PEAK_CEILING_H_
#define ANNULUS_BENCH_PEAK_CEILING_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/peak/peak_meter.h"
#include "kernels/base/dtype.h"

namespace annulus::bench {

// The rates that a run is compared with: that of the fastest instructions it may use for its
// products, and that of the fastest vector instructions. Without tile instructions, both are the
// same.
struct CeilingRates {
  double best = 0;    // operations per second, all threads together
  double vector = 0;  // likewise
};

// The mean of what was measured before and after a run. Runs are compared with it, because a
// machine's clock drifts.
CeilingRates MeanOf(const CeilingRates& before, const CeilingRates& after);

// The fastest instructions for a run's products, and their rates. Thread-safe, like its PeakMeter.
class Ceiling {
 public:
  // Measures all kinds of products that weights or keys of `dtype` allow, to find the fastest:
  // float32 multiply-adds; unless `dtype` is f32 or f16, also bf16 products; for int8 also int8
  // products. `forced` allows only that kind: INVALID_ARGUMENT, with the available kinds, if the
  // machine lacks it. `meter` must outlive the object. RESOURCE_EXHAUSTED as for
  // PeakMeter::Measure.
  static absl::StatusOr<Ceiling> Choose(const PeakMeter& meter, DType dtype, int threads,
                                        std::optional<PeakKind> forced);

  PeakKind best() const { return best_; }
  PeakKind vector() const { return vector_; }

  // Measures best() and, if it differs, vector(). Takes about 0.05 s for each.
  absl::StatusOr<CeilingRates> Measure() const;

 private:
  Ceiling(const PeakMeter& meter, int threads) : meter_(&meter), threads_(threads) {}

  const PeakMeter* meter_;
  int threads_;
  PeakKind best_ = PeakKind::kF32;
  PeakKind vector_ = PeakKind::kF32;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_PEAK_CEILING_H_
