#include "bench/peak/ceiling.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// More rounds than around a run: the choice is made once.
constexpr PeakEffort kChoosing{.rounds = 6, .slices = 5, .slice_seconds = 0.004};

std::vector<PeakKind> KindsFor(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
      return {PeakKind::kF32};
    case DType::kI8:
      return {PeakKind::kF32, PeakKind::kBF16, PeakKind::kI8, PeakKind::kAmxBF16, PeakKind::kAmxI8};
    default:
      return {PeakKind::kF32, PeakKind::kBF16, PeakKind::kAmxBF16};
  }
}

bool IsTile(PeakKind kind) { return kind == PeakKind::kAmxBF16 || kind == PeakKind::kAmxI8; }

absl::Status NotAvailable(const PeakMeter& meter, PeakKind kind) {
  std::string available;
  for (const PeakKind other : meter.Available()) {
    absl::StrAppend(&available, available.empty() ? "" : ", ", PeakName(other));
  }
  return absl::InvalidArgumentError(absl::StrCat("this machine does not have the ceiling ",
                                                 PeakName(kind), "; it has ", available));
}

}  // namespace

CeilingRates MeanOf(const CeilingRates& before, const CeilingRates& after) {
  return {(before.best + after.best) / 2, (before.vector + after.vector) / 2};
}

absl::StatusOr<Ceiling> Ceiling::Choose(const PeakMeter& meter, DType dtype, int threads,
                                        std::optional<PeakKind> forced) {
  Ceiling ceiling(meter, threads);
  if (forced.has_value()) {
    if (!meter.Has(*forced)) return NotAvailable(meter, *forced);
    ceiling.best_ = ceiling.vector_ = *forced;
    return ceiling;
  }
  double best = 0;
  double vector = 0;
  for (const PeakKind kind : KindsFor(dtype)) {
    if (!meter.Has(kind)) continue;
    ANNULUS_ASSIGN_OR_RETURN(const double rate, meter.Measure(kind, threads, kChoosing));
    if (rate > best) {
      best = rate;
      ceiling.best_ = kind;
    }
    if (!IsTile(kind) && rate > vector) {
      vector = rate;
      ceiling.vector_ = kind;
    }
  }
  return ceiling;
}

absl::StatusOr<CeilingRates> Ceiling::Measure() const {
  CeilingRates rates;
  ANNULUS_ASSIGN_OR_RETURN(rates.best, meter_->Measure(best_, threads_, kQuickPeak));
  rates.vector = rates.best;
  if (vector_ != best_) {
    ANNULUS_ASSIGN_OR_RETURN(rates.vector, meter_->Measure(vector_, threads_, kQuickPeak));
  }
  return rates;
}

}  // namespace annulus::bench
