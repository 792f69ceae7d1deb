#include "bench/gpu/op_lab.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {

absl::Status OpLab::Open() {
  ANNULUS_ASSIGN_OR_RETURN(stream, backend.CreateStream(1));
  ANNULUS_ASSIGN_OR_RETURN(OpTimer made, OpTimer::Create(backend, *stream, options.enough_seconds,
                                                         options.copied_bytes));
  timer.emplace(std::move(made));
  inputs.emplace(backend, ops, options, *stream);
  return absl::OkStatus();
}

bool OpLab::Named(absl::string_view op) const { return absl::c_linear_search(options.only, op); }

Row OpLab::RowOf(absl::string_view kernels, absl::string_view op, absl::string_view dtype,
                 int64_t size, const OpSeconds& seconds) {
  Row row;
  row.Text("kernels", kernels).Text("op", op).Text("dtype", dtype).Int("size", size);
  row.Number("seconds", seconds.device, Row::Unit::kSeconds);
  row.Number("host_seconds", seconds.host, Row::Unit::kSeconds);
  return row;
}

void OpLab::AddFlops(Row& row, double flops, const OpSeconds& seconds) {
  row.Number("tflops", flops / seconds.device * 1e-12);
}

void OpLab::AddBytes(Row& row, double bytes, const OpSeconds& seconds) const {
  const double rate = bytes / seconds.device;
  row.Number("gb_per_second", rate * 1e-9);
  row.Number("of_copy", rate * timer->copy_seconds() / timer->copied_bytes(), Row::Unit::kShare);
}

void OpLab::Report(Row& row, const OpSeconds& seconds) const {
  row.OnlyJson().Number("enqueue_seconds", seconds.enqueue).Int("runs", seconds.runs);
  report_(row);
}

double OpLab::FlopsOf(const PackedMatrix& weight, int64_t rows) {
  return 2 * static_cast<double>(rows * weight.in_features * weight.out_features);
}

double OpLab::CausalFlops(double tokens) const {
  return 4.0 * options.heads * options.head_dim * tokens * (tokens + 1) / 2;
}

}  // namespace annulus::bench
