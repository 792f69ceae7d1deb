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
  double best = 0;    // operations per second, all threads
  double vector = 0;  //
};

// The mean of measurements before and after a run, to which fractions refer because a machine's
// clock drifts.
CeilingRates MeanOf(const CeilingRates& before, const CeilingRates& after);

class Ceiling {
 public:
  // Measures all kinds of products that weights or keys of `dtype` allow, to find the fastest. f32
  // and f16 allow float32 multiply-adds; int8 weights allow integer and bf16 products; all others
  // allow bf16 products, or float32 ones instead. `forced` allows just that kind; INVALID_ARGUMENT,
  // with those available, if it is not.
  static absl::StatusOr<Ceiling> Choose(const PeakMeter& meter, DType dtype, int threads,
                                        std::optional<PeakKind> forced);

  PeakKind best() const { return best_; }
  PeakKind vector() const { return vector_; }

  // Takes about 0.05 s per kind.
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
