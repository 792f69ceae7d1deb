#ifndef ANNULUS_BENCH_GPU_OP_LAB_H_
#define ANNULUS_BENCH_GPU_OP_LAB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "bench/gpu/op_inputs.h"
#include "bench/gpu/op_timer.h"
#include "bench/gpu/op_times.h"
#include "bench/report/row.h"
#include "kernels/registry.h"

namespace annulus::bench {

// What all ops of a table are timed with, and what every row about them says. Not thread-safe.
class OpLab {
 public:
  // All must outlive the lab.
  OpLab(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
        const std::function<void(const Row&)>& report)
      : backend(backend), ops(ops), options(options), report_(report) {}
  OpLab(const OpLab&) = delete;
  OpLab& operator=(const OpLab&) = delete;

  // Makes stream, timer and inputs; call it once, before all that uses them.
  absl::Status Open();

  // Whether the options name an op; Wanted: or name none.
  bool Named(absl::string_view op) const;
  bool Wanted(absl::string_view op) const { return options.only.empty() || Named(op); }

  // A row with what every row has. `kernels`: the table's name, if it is another.
  Row RowOf(absl::string_view op, absl::string_view dtype, int64_t size,
            const OpSeconds& seconds) const {
    return RowOf(ops.name, op, dtype, size, seconds);
  }
  static Row RowOf(absl::string_view kernels, absl::string_view op, absl::string_view dtype,
                   int64_t size, const OpSeconds& seconds);
  static void AddFlops(Row& row, double flops, const OpSeconds& seconds);
  void AddBytes(Row& row, double bytes, const OpSeconds& seconds) const;
  // Adds how often the op ran.
  void Report(Row& row, const OpSeconds& seconds) const;
  void Report(const Row& row) const { report_(row); }

  // Of a product of `rows` rows.
  static double FlopsOf(const PackedMatrix& weight, int64_t rows);
  // Of the pairs that causal attention attends.
  double CausalFlops(double tokens) const;

  Backend& backend;
  const OpTable& ops;
  const OpTimesOptions& options;
  std::unique_ptr<Stream> stream;
  std::optional<OpTimer> timer;
  std::optional<OpInputs> inputs;

 private:
  const std::function<void(const Row&)>& report_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_OP_LAB_H_
