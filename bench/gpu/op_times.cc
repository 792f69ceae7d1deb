#include "bench/gpu/op_times.h"

#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gpu/op_inputs.h"
#include "bench/gpu/op_lab.h"
#include "bench/gpu/op_timer.h"
#include "bench/gpu/step_run.h"
#include "bench/gpu/trial_times.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr double kListsCost = 0.05;  // of a dense run, that lists may take beside their pairs

class OpTimes {
 public:
  explicit OpTimes(OpLab& lab) : lab_(lab) {}

  absl::Status Run() {
    if (lab_.Wanted("copy")) ReportCopy();
    if (lab_.Wanted("decode")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8}) {
        ANNULUS_RETURN_IF_ERROR(TimeDecode(dtype));
      }
    }
    if (lab_.Wanted("linear")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8, DType::kI4G64}) {
        ANNULUS_ASSIGN_OR_RETURN(
            const std::vector<PackedMatrix> weights,
            lab_.inputs->MakeWeights(dtype, lab_.options.hidden, lab_.options.intermediate));
        for (const int64_t rows : lab_.options.linear_rows) {
          ANNULUS_RETURN_IF_ERROR(TimeLinear(weights, rows));
        }
      }
    }
    if (lab_.Wanted("step")) ANNULUS_RETURN_IF_ERROR(TimeSteps());
    if (lab_.Wanted("prefill")) {
      for (const int32_t tokens : lab_.options.sequences) {
        ANNULUS_RETURN_IF_ERROR(TimePrefill(DType::kBF16, tokens));
      }
      for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
        ANNULUS_RETURN_IF_ERROR(TimePrefill(dtype, lab_.options.sequences.front()));
      }
    }
    if (lab_.Wanted("prefill_blocks")) ANNULUS_RETURN_IF_ERROR(TimeSparse());
    return absl::OkStatus();
  }

 private:
  // bf16 comes first.
  void AddSpeedup(Row& row, const char* op, DType dtype, int64_t size, const OpSeconds& seconds) {
    const std::pair<std::string, int64_t> key(op, size);
    if (dtype == DType::kBF16) bf16_seconds_[key] = seconds.device;
    row.Number("speedup_over_bf16", bf16_seconds_.at(key) / seconds.device);
  }

  void ReportCopy() {
    const OpSeconds seconds{lab_.timer->copy_seconds(), lab_.timer->copy_host_seconds(), 0, 1};
    Row row = lab_.RowOf("copy", "", static_cast<int64_t>(lab_.options.copied_bytes), seconds);
    row.Number("gb_per_second", lab_.timer->copied_bytes() / seconds.device * 1e-9);
    lab_.Report(row);
  }

  absl::StatusOr<OpSeconds> TimeAttention(Sequence& sequence, const BlockLists& lists) {
    const AttentionItem item = lab_.inputs->ItemOf(sequence, lists);
    return lab_.timer->Time(
        [&] { return lab_.inputs->Attend(lab_.ops, *lab_.stream, sequence, item); });
  }

  absl::Status TimePrefill(DType dtype, int32_t tokens) {
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, lab_.inputs->MakeSequence(tokens, tokens, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, {}));
    Row row = lab_.RowOf("prefill", DTypeName(dtype), tokens, seconds);
    lab_.AddFlops(row, lab_.CausalFlops(tokens), seconds);
    AddSpeedup(row, "prefill", dtype, tokens, seconds);
    lab_.Report(row, seconds);
    return absl::OkStatus();
  }

  absl::Status TimeSparse() {
    const int32_t tokens = lab_.options.sparse_tokens;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence,
                             lab_.inputs->MakeSequence(tokens, tokens, DType::kBF16));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds dense, TimeAttention(sequence, {}));
    for (const double density : lab_.options.densities) {
      const Lists lists = DrawLists(tokens, density);
      ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, lists.view()));
      Row row = lab_.RowOf("prefill_blocks", "bf16", tokens, seconds);
      row.Number("density", lists.density);
      lab_.AddFlops(row, lab_.CausalFlops(tokens) * lists.density, seconds);
      row.Number("ratio_to_dense", seconds.device / dense.device);
      row.Number("ratio_bound", lists.density + kListsCost);
      lab_.Report(row, seconds);
    }
    return absl::OkStatus();
  }

  absl::Status TimeDecode(DType dtype) {
    const int32_t tokens = lab_.options.decode_tokens;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, lab_.inputs->MakeSequence(tokens, 1, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, {}));
    Row row = lab_.RowOf("decode", DTypeName(dtype), tokens, seconds);
    lab_.AddBytes(row, static_cast<double>(sequence.slab.size()), seconds);
    AddSpeedup(row, "decode", dtype, tokens, seconds);
    lab_.Report(row, seconds);
    return absl::OkStatus();
  }

  absl::Status TimeLinear(const std::vector<PackedMatrix>& weights, int64_t rows) {
    const PackedMatrix& weight = weights.front();
    ANNULUS_ASSIGN_OR_RETURN(TurnedProducts products, lab_.inputs->MakeProducts(weights, rows));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, lab_.timer->Time([&] {
      return products.Multiply(*lab_.stream, lab_.ops);
    }));
    Row row = lab_.RowOf("linear", DTypeName(weight.dtype), rows, seconds);
    lab_.AddFlops(row, lab_.FlopsOf(weight, rows), seconds);
    lab_.AddBytes(row, static_cast<double>(weight.storage.size()), seconds);
    AddSpeedup(row, "linear", weight.dtype, rows, seconds);
    lab_.Report(row, seconds);
    return absl::OkStatus();
  }

  // The same step launched one by one, and held back and launched as a graph.
  absl::Status TimeSteps() {
    ANNULUS_ASSIGN_OR_RETURN(StepRun step,
                             StepRun::Create(lab_.backend, lab_.ops, *lab_.inputs, lab_.options));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds single,
                             lab_.timer->TimeAlone([&] { return step.Run(*lab_.stream); }));
    const GraphCounts before = lab_.stream->graph_counts();
    int64_t steps = 0;
    const auto run_graph = [&]() -> absl::Status {
      ++steps;
      return step.RunHeld(*lab_.stream);
    };
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds graph, lab_.timer->TimeAlone(run_graph));
    const GraphCounts after = lab_.stream->graph_counts();
    if (after.whole - before.whole < steps - 1) {
      return absl::InternalError(absl::StrCat("of ", steps, " steps ", after.whole - before.whole,
                                              " were one graph: nothing to compare"));
    }
    const int64_t launches = (after.replayed - before.replayed) / steps;
    ReportStep("step", launches, single, 1);
    ReportStep("step_graph", launches, graph, graph.host / single.host);
    return absl::OkStatus();
  }

  void ReportStep(const char* op, int64_t launches, const OpSeconds& seconds, double ratio) {
    Row row = lab_.RowOf(op, "bf16", launches, seconds);
    row.Number("ratio_to_single", ratio);
    lab_.Report(row, seconds);
  }

  OpLab& lab_;
  std::map<std::pair<std::string, int64_t>, double> bf16_seconds_;  // of an op and size
};

}  // namespace

absl::Status MeasureOps(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
                        const std::function<void(const Row&)>& report) {
  OpLab lab(backend, ops, options, report);
  ANNULUS_RETURN_IF_ERROR(lab.Open());
  ANNULUS_RETURN_IF_ERROR(OpTimes(lab).Run());
  return MeasureTrials(lab);
}

}  // namespace annulus::bench
