#include "bench/gpu/op_times.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "bench/gpu/layer_run.h"
#include "bench/gpu/op_inputs.h"
#include "bench/gpu/op_timer.h"
#include "bench/gpu/step_run.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr double kListsCost = 0.05;  // of a dense run, that lists may take beside their pairs
constexpr char kOverlapping[] = "-overlapping";  // behind a table's name
constexpr int kTurns = 3;                        // of steps that are timed on streams of their own
constexpr size_t kMostCompared = size_t{64} << 20;  // bytes of an output

class OpTimes {
 public:
  OpTimes(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
          const std::function<void(const Row&)>& report)
      : backend_(backend), ops_(ops), options_(options), report_(report) {}

  absl::Status Run() {
    ANNULUS_ASSIGN_OR_RETURN(stream_, backend_.CreateStream(1));
    ANNULUS_ASSIGN_OR_RETURN(
        OpTimer timer,
        OpTimer::Create(backend_, *stream_, options_.enough_seconds, options_.copied_bytes));
    timer_.emplace(std::move(timer));
    inputs_.emplace(backend_, ops_, options_, *stream_);
    if (Wanted("copy")) ReportCopy();
    if (Wanted("decode")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8}) {
        ANNULUS_RETURN_IF_ERROR(TimeDecode(dtype));
      }
    }
    if (Wanted("linear")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8, DType::kI4G64}) {
        ANNULUS_ASSIGN_OR_RETURN(
            const std::vector<PackedMatrix> weights,
            inputs_->MakeWeights(dtype, options_.hidden, options_.intermediate));
        for (const int64_t rows : options_.linear_rows) {
          ANNULUS_RETURN_IF_ERROR(TimeLinear(weights, rows));
        }
      }
    }
    if (Wanted("step")) ANNULUS_RETURN_IF_ERROR(TimeSteps());
    if (Wanted("prefill")) {
      for (const int32_t tokens : options_.sequences) {
        ANNULUS_RETURN_IF_ERROR(TimePrefill(DType::kBF16, tokens));
      }
      for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
        ANNULUS_RETURN_IF_ERROR(TimePrefill(dtype, options_.sequences.front()));
      }
    }
    if (Wanted("prefill_blocks")) ANNULUS_RETURN_IF_ERROR(TimeSparse());
    return TimeTrials();
  }

 private:
  bool Wanted(const char* op) const { return options_.only.empty() || Named(op); }
  bool Named(const char* op) const { return absl::c_linear_search(options_.only, op); }

  // What every row has.
  Row RowOf(const char* op, absl::string_view dtype, int64_t size, const OpSeconds& seconds) const {
    return RowOf(ops_.name, op, dtype, size, seconds);
  }
  static Row RowOf(absl::string_view kernels, const char* op, absl::string_view dtype, int64_t size,
                   const OpSeconds& seconds) {
    Row row;
    row.Text("kernels", kernels).Text("op", op).Text("dtype", dtype).Int("size", size);
    row.Number("seconds", seconds.device, Row::Unit::kSeconds);
    row.Number("host_seconds", seconds.host, Row::Unit::kSeconds);
    return row;
  }

  void Report(Row& row, const OpSeconds& seconds) {
    row.OnlyJson().Number("enqueue_seconds", seconds.enqueue).Int("runs", seconds.runs);
    report_(row);
  }

  static void AddFlops(Row& row, double flops, const OpSeconds& seconds) {
    row.Number("tflops", flops / seconds.device * 1e-12);
  }

  void AddBytes(Row& row, double bytes, const OpSeconds& seconds) const {
    const double rate = bytes / seconds.device;
    row.Number("gb_per_second", rate * 1e-9);
    row.Number("of_copy", rate * timer_->copy_seconds() / timer_->copied_bytes(),
               Row::Unit::kShare);
  }

  // bf16 comes first.
  void AddSpeedup(Row& row, const char* op, DType dtype, int64_t size, const OpSeconds& seconds) {
    const std::pair<std::string, int64_t> key(op, size);
    if (dtype == DType::kBF16) bf16_seconds_[key] = seconds.device;
    row.Number("speedup_over_bf16", bf16_seconds_.at(key) / seconds.device);
  }

  void ReportCopy() {
    const OpSeconds seconds{timer_->copy_seconds(), timer_->copy_host_seconds(), 0, 1};
    Row row = RowOf("copy", "", static_cast<int64_t>(options_.copied_bytes), seconds);
    row.Number("gb_per_second", timer_->copied_bytes() / seconds.device * 1e-9);
    report_(row);
  }

  absl::StatusOr<OpSeconds> TimeAttention(Sequence& sequence, const BlockLists& lists) {
    const AttentionItem item = inputs_->ItemOf(sequence, lists);
    return timer_->Time([&] { return inputs_->Attend(ops_, *stream_, sequence, item); });
  }

  static double FlopsOf(const PackedMatrix& weight, int64_t rows) {
    return 2 * static_cast<double>(rows * weight.in_features * weight.out_features);
  }

  double CausalFlops(double tokens) const {
    return 4.0 * options_.heads * options_.head_dim * tokens * (tokens + 1) / 2;
  }

  absl::Status TimePrefill(DType dtype, int32_t tokens) {
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, inputs_->MakeSequence(tokens, tokens, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, {}));
    Row row = RowOf("prefill", DTypeName(dtype), tokens, seconds);
    AddFlops(row, CausalFlops(tokens), seconds);
    AddSpeedup(row, "prefill", dtype, tokens, seconds);
    Report(row, seconds);
    return absl::OkStatus();
  }

  absl::Status TimeSparse() {
    const int32_t tokens = options_.sparse_tokens;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence,
                             inputs_->MakeSequence(tokens, tokens, DType::kBF16));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds dense, TimeAttention(sequence, {}));
    for (const double density : options_.densities) {
      const Lists lists = DrawLists(tokens, density);
      ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, lists.view()));
      Row row = RowOf("prefill_blocks", "bf16", tokens, seconds);
      row.Number("density", lists.density);
      AddFlops(row, CausalFlops(tokens) * lists.density, seconds);
      row.Number("ratio_to_dense", seconds.device / dense.device);
      row.Number("ratio_bound", lists.density + kListsCost);
      Report(row, seconds);
    }
    return absl::OkStatus();
  }

  absl::Status TimeTrials() {
    if (options_.trial == nullptr) return absl::OkStatus();
    if (Named("prefill_trial") || Named("pairs_trial")) {
      for (const int32_t tokens : options_.trial_sequences) {
        ANNULUS_RETURN_IF_ERROR(TimePrefillTrials(tokens));
      }
    }
    if (Named("linear_trial")) ANNULUS_RETURN_IF_ERROR(TimeLinearTrial());
    if (Named("gate_trial")) {
      ANNULUS_RETURN_IF_ERROR(
          TimeFewRowsTrial("gate_trial", options_.hidden, options_.intermediate));
    }
    if (Named("down_trial")) {
      ANNULUS_RETURN_IF_ERROR(
          TimeFewRowsTrial("down_trial", options_.intermediate, options_.hidden));
    }
    if (Named("fp8_trial") || Named("overlap_trial")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
        ANNULUS_RETURN_IF_ERROR(TimeLayerTrials(dtype));
      }
    }
    if (Named("step_trial")) ANNULUS_RETURN_IF_ERROR(TimeStepTrial());
    return absl::OkStatus();
  }

  absl::Status TimeFewRowsTrial(const char* op, int64_t in, int64_t out) {
    for (const DType dtype : {DType::kI4G64, DType::kI8, DType::kF8E4M3, DType::kBF16}) {
      ANNULUS_ASSIGN_OR_RETURN(const std::vector<PackedMatrix> weights,
                               inputs_->MakeWeights(dtype, in, out));
      const PackedMatrix& weight = weights.front();
      for (const int64_t rows : options_.few_rows) {
        ANNULUS_ASSIGN_OR_RETURN(TurnedProducts products, inputs_->MakeProducts(weights, rows));
        DeviceBuffer* const outputs[] = {&products.output()};
        ANNULUS_RETURN_IF_ERROR(
            TimeTrial({op, dtype, rows, FlopsOf(weight, rows), weight.storage.size()}, outputs,
                      [&](const OpTable& ops) { return products.Multiply(*stream_, ops); }));
      }
    }
    return absl::OkStatus();
  }

  absl::Status TimeLayerTrials(DType dtype) {
    const int64_t hidden = options_.hidden;
    const int64_t wide = options_.intermediate;
    LayerMatrices matrices;
    ANNULUS_ASSIGN_OR_RETURN(matrices.query, inputs_->MakeWeights(dtype, hidden, hidden));
    ANNULUS_ASSIGN_OR_RETURN(
        matrices.key,
        inputs_->MakeWeights(dtype, hidden, int64_t{options_.kv_heads} * options_.head_dim));
    ANNULUS_ASSIGN_OR_RETURN(matrices.wide, inputs_->MakeWeights(dtype, hidden, wide));
    ANNULUS_ASSIGN_OR_RETURN(matrices.down, inputs_->MakeWeights(dtype, wide, hidden));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer norm, inputs_->UploadNormal(static_cast<size_t>(hidden)));
    for (const int64_t rows : options_.layer_rows) {
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer residual,
                               inputs_->UploadNormal(static_cast<size_t>(rows * hidden)));
      ANNULUS_ASSIGN_OR_RETURN(
          LayerRun layer,
          LayerRun::Create(backend_, matrices, rows, residual.as<float>(), norm.as<float>()));
      if (Named("fp8_trial")) ANNULUS_RETURN_IF_ERROR(TimeCodedRows(dtype, rows, layer));
      if (Named("overlap_trial")) ANNULUS_RETURN_IF_ERROR(TimeOverlap(dtype, rows, layer));
    }
    return absl::OkStatus();
  }

  // The products are the trial's in both ways, so that only the rows before them differ.
  absl::Status TimeCodedRows(DType dtype, int64_t rows, LayerRun& layer) {
    OpTable apart = *options_.trial;
    apart.norm = ops_.norm;
    apart.gated_mul = ops_.gated_mul;
    return TimeTrial(
        {"fp8_trial", dtype, rows, layer.flops()}, layer.outputs(),
        [&](const OpTable& ops) { return layer.Run(&ops == &ops_ ? apart : ops, *stream_); });
  }

  // By the table, and by the trial: each with kernels that overlap, and with others.
  absl::Status TimeOverlap(DType dtype, int64_t rows, LayerRun& layer) {
    for (const OpTable* const ops : {&ops_, options_.trial}) {
      const auto run = [&](bool overlap) {
        options_.overlap(*stream_, overlap);
        const absl::Status status = layer.Run(*ops, *stream_);
        options_.overlap(*stream_, false);
        return status;
      };
      ANNULUS_RETURN_IF_ERROR(TimeWays({"overlap_trial", dtype, rows, layer.flops()},
                                       layer.outputs(),
                                       {ops->name, absl::StrCat(ops->name, kOverlapping)},
                                       {[&] { return run(false); }, [&] { return run(true); }}));
    }
    return absl::OkStatus();
  }

  // A step as a graph, on a stream of its own whose kernels overlap or not.
  struct StepWay {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<StepRun> step;
    std::unique_ptr<OpTimer> timer;
    std::vector<double> device, host;
  };
  absl::StatusOr<StepWay> MakeStepWay(bool overlap) {
    StepWay way;
    ANNULUS_ASSIGN_OR_RETURN(way.stream, backend_.CreateStream(1));
    options_.overlap(*way.stream, overlap);
    ANNULUS_ASSIGN_OR_RETURN(StepRun step, StepRun::Create(backend_, ops_, *inputs_, options_));
    way.step = std::make_unique<StepRun>(std::move(step));
    ANNULUS_ASSIGN_OR_RETURN(
        OpTimer timer, OpTimer::Create(backend_, *way.stream, options_.enough_seconds / kTurns, 0));
    way.timer = std::make_unique<OpTimer>(std::move(timer));
    return way;
  }

  // The same graph with edges of either kind: a graph that changed its kind would be built anew in
  // every turn, so each way has a stream.
  absl::Status TimeStepTrial() {
    StepWay ways[2];
    for (const bool overlap : {false, true}) {
      ANNULUS_ASSIGN_OR_RETURN(ways[overlap], MakeStepWay(overlap));
    }
    std::vector<std::byte> left[2];
    for (const int way : {0, 1}) {
      ANNULUS_RETURN_IF_ERROR(ways[way].step->RunHeld(*ways[way].stream));
      ANNULUS_RETURN_IF_ERROR(ways[way].stream->Synchronize());
      ANNULUS_ASSIGN_OR_RETURN(left[way], ReadOutputs(ways[way].step->outputs()));
    }
    const Trial what{"step_trial", DType::kBF16, LaunchesOf(*ways[1].stream), 0};
    const TrialNames names{ops_.name, absl::StrCat(ops_.name, kOverlapping)};
    ANNULUS_RETURN_IF_ERROR(CheckSameBits(what, names, left[0], left[1]));
    for (int turn = 0; turn < kTurns; ++turn) {
      for (StepWay& way : ways) {
        ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, way.timer->TimeAlone([&] {
          return way.step->RunHeld(*way.stream);
        }));
        way.device.push_back(seconds.device);
        way.host.push_back(seconds.host);
      }
    }
    ReportTrial(what, names, {Median(ways[0].device), Median(ways[0].host), 0, 1},
                {Median(ways[1].device), Median(ways[1].host), 0, 1});
    return absl::OkStatus();
  }

  // Of one step.
  static int64_t LaunchesOf(const Stream& stream) {
    const GraphCounts counts = stream.graph_counts();
    return counts.replayed / std::max<int64_t>(counts.whole + counts.in_pieces, 1);
  }

  // The products of a small model's layer, but for those of keys and values.
  absl::Status TimeLinearTrial() {
    const int64_t hidden = options_.trial_hidden;
    const int64_t wide = options_.trial_intermediate;
    std::vector<std::vector<PackedMatrix>> kinds;
    for (const auto& [in, out] : {std::pair(hidden, hidden), {hidden, wide}, {wide, hidden}}) {
      ANNULUS_ASSIGN_OR_RETURN(kinds.emplace_back(), inputs_->MakeWeights(DType::kBF16, in, out));
    }
    const auto layer = {0, 0, 1, 1, 2};  // query and output, gate and up, down
    for (const int64_t rows : options_.trial_rows) {
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer input,
                               inputs_->UploadNormal(static_cast<size_t>(rows * wide)));
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer output,
                               backend_.Allocate(static_cast<size_t>(rows * wide) * sizeof(float)));
      DeviceBuffer* const outputs[] = {&output};
      size_t next = 0;  // all matrices of a kind are alike
      const auto run = [&](const OpTable& ops) -> absl::Status {
        for (const int kind : layer) {
          const PackedMatrix& weight = kinds[kind][next++ % kinds[kind].size()];
          LinearParams params;
          params.input = {input.as<float>(), rows, weight.in_features, weight.in_features};
          params.weight = &weight;
          params.output = {output.as<float>(), rows, weight.out_features, weight.out_features};
          ANNULUS_RETURN_IF_ERROR(ops.linear(*stream_, params));
        }
        return absl::OkStatus();
      };
      const auto flops = static_cast<double>(2 * rows * (2 * hidden * hidden + 3 * hidden * wide));
      ANNULUS_RETURN_IF_ERROR(TimeTrial({"linear_trial", DType::kBF16, rows, flops}, outputs, run));
    }
    return absl::OkStatus();
  }

  absl::Status TimePrefillTrials(int32_t tokens) {
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence,
                             inputs_->MakeSequence(tokens, tokens, DType::kBF16));
    const AttentionItem item = inputs_->ItemOf(sequence, {});
    DeviceBuffer* const outputs[] = {&sequence.o, &sequence.lse};
    const auto run = [&](const OpTable& ops) {
      return inputs_->Attend(ops, *stream_, sequence, item);
    };
    const double flops = CausalFlops(tokens);
    if (Named("prefill_trial")) {
      ANNULUS_RETURN_IF_ERROR(
          TimeTrial({"prefill_trial", DType::kBF16, tokens, flops}, outputs, run));
    }
    if (!Named("pairs_trial")) return absl::OkStatus();
    const OpTable& trial = *options_.trial;
    const OpTable& pairs = *options_.pairs;
    return TimeWays({"pairs_trial", DType::kBF16, tokens, flops}, outputs, {trial.name, pairs.name},
                    {[&] { return run(trial); }, [&] { return run(pairs); }});
  }

  struct Trial {
    const char* op;
    DType dtype;
    int64_t size;
    double flops;
    size_t bytes = 0;  // of weights, if they bound the time
  };

  // Of the old way and the new one.
  struct TrialNames {
    std::string old_way;
    std::string new_way;
  };

  // Times `run` by the table and by the trial in turn.
  absl::Status TimeTrial(const Trial& what, std::span<DeviceBuffer* const> outputs,
                         const std::function<absl::Status(const OpTable&)>& run) {
    return TimeWays(what, outputs, {ops_.name, options_.trial->name},
                    {[&] { return run(ops_); }, [&] { return run(*options_.trial); }});
  }

  // Times the old way and the new one in turn. INTERNAL if they leave different bits in the first
  // kMostCompared bytes of each output.
  absl::Status TimeWays(const Trial& what, std::span<DeviceBuffer* const> outputs,
                        const TrialNames& names,
                        const std::array<std::function<absl::Status()>, 2>& ways) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> old, OutputsOf(ways[0], outputs));
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> trial, OutputsOf(ways[1], outputs));
    ANNULUS_RETURN_IF_ERROR(CheckSameBits(what, names, old, trial));
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<OpSeconds> seconds, timer_->TimeInTurn(ways));
    ReportTrial(what, names, seconds[0], seconds[1]);
    return absl::OkStatus();
  }

  static absl::Status CheckSameBits(const Trial& what, const TrialNames& names,
                                    const std::vector<std::byte>& old,
                                    const std::vector<std::byte>& trial) {
    if (trial == old) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(what.op, " of ", DTypeName(what.dtype), ", ", what.size,
                                            ": ", names.new_way, " has other bits than ",
                                            names.old_way));
  }

  void ReportTrial(const Trial& what, const TrialNames& names, const OpSeconds& old,
                   const OpSeconds& seconds) {
    Row row = RowOf(names.old_way, what.op, DTypeName(what.dtype), what.size, seconds);
    row.Text("trial", names.new_way);
    if (what.flops > 0) AddFlops(row, what.flops, seconds);
    if (what.bytes > 0) AddBytes(row, static_cast<double>(what.bytes), seconds);
    row.Number("old_seconds", old.device, Row::Unit::kSeconds);
    row.Number("ratio_to_old", seconds.device / old.device);
    Report(row, seconds);
  }

  // What `run` leaves in outputs that are cleared before.
  absl::StatusOr<std::vector<std::byte>> OutputsOf(const std::function<absl::Status()>& run,
                                                   std::span<DeviceBuffer* const> outputs) {
    const std::vector<std::byte> zeros(kMostCompared);
    for (DeviceBuffer* const output : outputs) {
      const size_t bytes = std::min(output->size(), zeros.size());
      ANNULUS_RETURN_IF_ERROR(backend_.Copy(*stream_, output->data(), zeros.data(), bytes));
    }
    ANNULUS_RETURN_IF_ERROR(run());
    return ReadOutputs(outputs);
  }

  absl::StatusOr<std::vector<std::byte>> ReadOutputs(std::span<DeviceBuffer* const> outputs) {
    std::vector<std::byte> left;
    for (const DeviceBuffer* const output : outputs) {
      const size_t bytes = std::min(output->size(), kMostCompared);
      left.resize(left.size() + bytes);
      ANNULUS_RETURN_IF_ERROR(
          backend_.Copy(*stream_, left.data() + left.size() - bytes, output->data(), bytes));
      ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
    }
    return left;
  }

  absl::Status TimeDecode(DType dtype) {
    const int32_t tokens = options_.decode_tokens;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, inputs_->MakeSequence(tokens, 1, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, {}));
    Row row = RowOf("decode", DTypeName(dtype), tokens, seconds);
    AddBytes(row, static_cast<double>(sequence.slab.size()), seconds);
    AddSpeedup(row, "decode", dtype, tokens, seconds);
    Report(row, seconds);
    return absl::OkStatus();
  }

  absl::Status TimeLinear(const std::vector<PackedMatrix>& weights, int64_t rows) {
    const PackedMatrix& weight = weights.front();
    ANNULUS_ASSIGN_OR_RETURN(TurnedProducts products, inputs_->MakeProducts(weights, rows));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds,
                             timer_->Time([&] { return products.Multiply(*stream_, ops_); }));
    Row row = RowOf("linear", DTypeName(weight.dtype), rows, seconds);
    AddFlops(row, FlopsOf(weight, rows), seconds);
    AddBytes(row, static_cast<double>(weight.storage.size()), seconds);
    AddSpeedup(row, "linear", weight.dtype, rows, seconds);
    Report(row, seconds);
    return absl::OkStatus();
  }

  // The same step launched one by one, and held back and launched as a graph.
  absl::Status TimeSteps() {
    ANNULUS_ASSIGN_OR_RETURN(StepRun step, StepRun::Create(backend_, ops_, *inputs_, options_));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds single,
                             timer_->TimeAlone([&] { return step.Run(*stream_); }));
    const GraphCounts before = stream_->graph_counts();
    int64_t steps = 0;
    const auto run_graph = [&]() -> absl::Status {
      ++steps;
      return step.RunHeld(*stream_);
    };
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds graph, timer_->TimeAlone(run_graph));
    const GraphCounts after = stream_->graph_counts();
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
    Row row = RowOf(op, "bf16", launches, seconds);
    row.Number("ratio_to_single", ratio);
    Report(row, seconds);
  }

  Backend& backend_;
  const OpTable& ops_;
  const OpTimesOptions& options_;
  const std::function<void(const Row&)>& report_;
  std::unique_ptr<Stream> stream_;
  std::optional<OpTimer> timer_;
  std::optional<OpInputs> inputs_;
  std::map<std::pair<std::string, int64_t>, double> bf16_seconds_;  // of an op and size
};

}  // namespace

absl::Status MeasureOps(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
                        const std::function<void(const Row&)>& report) {
  return OpTimes(backend, ops, options, report).Run();
}

}  // namespace annulus::bench
