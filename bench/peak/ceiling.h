#ifndef ANNULUS_BENCH_PEAK_CEILING_H_
#define ANNULUS_BENCH_PEAK_CEILING_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/peak/peak_meter.h"
#include "kernels/base/dtype.h"

namespace annulus {

// What a run is compared with: the fastest instructions that the process may use for its products,
// and the fastest among vector instructions, which is the same where there are no tiles.
struct CeilingRates {
  double best = 0;    // operations per second, all threads
  double vector = 0;  //
};

// Measured once before and once after a run; a fraction refers to the mean of both, since the clock
// of a machine drifts.
CeilingRates MeanOf(const CeilingRates& before, const CeilingRates& after);

class Ceiling {
 public:
  // The kinds of products that weights or keys of `dtype` allow: f32 and f16 float32 multiply-adds;
  // int8 weights integer or bf16 products, whatever is faster; all else bf16 products, which
  // float32 ones can stand in for. Measures them to find the fastest. `forced`: that kind alone; it
  // must be available (else INVALID_ARGUMENT with what is).
  static absl::StatusOr<Ceiling> Choose(const PeakMeter& meter, DType dtype, int threads,
                                        std::optional<PeakKind> forced);

  PeakKind best() const { return best_; }
  PeakKind vector() const { return vector_; }

  // About 0.05 s for each kind.
  absl::StatusOr<CeilingRates> Measure() const;

 private:
  Ceiling(const PeakMeter& meter, int threads) : meter_(&meter), threads_(threads) {}

  const PeakMeter* meter_;
  int threads_;
  PeakKind best_ = PeakKind::kF32;
  PeakKind vector_ = PeakKind::kF32;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_PEAK_CEILING_H_
