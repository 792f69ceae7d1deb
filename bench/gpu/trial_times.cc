#include "bench/gpu/trial_times.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "bench/gpu/layer_run.h"
#include "bench/gpu/op_inputs.h"
#include "bench/gpu/op_timer.h"
#include "bench/gpu/step_run.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr char kOverlapping[] = "-overlapping";  // behind a table's name
constexpr int kTurns = 3;                        // of steps that are timed on streams of their own
constexpr size_t kMostCompared = size_t{64} << 20;  // bytes of an output
constexpr float kRounding = 0x1p-5f;                // of the largest value of a layer
// Of an output by products of e4m3, in shares of its root mean square. Roundings to e4m3, of up to
// 2^-4 each, leave about 0.04; a key that met another value would leave more than 1.
constexpr double kMostFloat8Error = 0.125;

// Float32 values that two ways of computing left.
float ValueAt(const std::vector<std::byte>& bytes, size_t i) {
  float value;
  std::memcpy(&value, bytes.data() + i * sizeof(value), sizeof(value));
  return value;
}

// Whether they differ by no more than rounding does, in one layer.
bool AreClose(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  float largest = 0;
  float difference = 0;
  for (size_t i = 0; i < a.size() / sizeof(float); ++i) {
    const float x = ValueAt(a, i);
    const float apart = std::abs(x - ValueAt(b, i));
    if (!std::isfinite(apart)) return false;
    largest = std::max(largest, std::abs(x));
    difference = std::max(difference, apart);
  }
  return difference <= largest * kRounding;
}

// The share of values with other bits.
double OtherBits(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  size_t other = 0;
  for (size_t at = 0; at < a.size(); at += sizeof(float)) {
    if (std::memcmp(a.data() + at, b.data() + at, sizeof(float)) != 0) ++other;
  }
  return static_cast<double>(other) / static_cast<double>(a.size() / sizeof(float));
}

class TrialTimes {
 public:
  explicit TrialTimes(OpLab& lab) : lab_(lab) {}

  absl::Status Run() {
    if (lab_.options.trial == nullptr) return absl::OkStatus();
    if (lab_.Named("prefill_trial") || lab_.Named("pairs_trial")) {
      for (const int32_t tokens : lab_.options.trial_sequences) {
        ANNULUS_RETURN_IF_ERROR(TimePrefillTrials(tokens));
      }
    }
    if (lab_.Named("linear_trial")) ANNULUS_RETURN_IF_ERROR(TimeLinearTrial());
    if (lab_.Named("gate_trial")) {
      ANNULUS_RETURN_IF_ERROR(
          TimeFewRowsTrial("gate_trial", lab_.options.hidden, lab_.options.intermediate));
    }
    if (lab_.Named("down_trial")) {
      ANNULUS_RETURN_IF_ERROR(
          TimeFewRowsTrial("down_trial", lab_.options.intermediate, lab_.options.hidden));
    }
    if (lab_.Named("fp8_trial") || lab_.Named("overlap_trial")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
        ANNULUS_RETURN_IF_ERROR(TimeLayerTrials(dtype));
      }
    }
    if (lab_.Named("step_trial")) ANNULUS_RETURN_IF_ERROR(TimeStepTrial());
    if (lab_.Named("prefill_fp8_trial")) {
      for (const int32_t tokens : lab_.options.trial_sequences) {
        ANNULUS_RETURN_IF_ERROR(TimeFloat8Trial(tokens));
      }
    }
    if (lab_.Named("wgmma_trial")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8, DType::kI4G64}) {
        ANNULUS_RETURN_IF_ERROR(TimeWarpgroupTrial(dtype));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status TimeFewRowsTrial(const char* op, int64_t in, int64_t out) {
    for (const DType dtype : {DType::kI4G64, DType::kI8, DType::kF8E4M3, DType::kBF16}) {
      ANNULUS_ASSIGN_OR_RETURN(const std::vector<PackedMatrix> weights,
                               lab_.inputs->MakeWeights(dtype, in, out));
      const PackedMatrix& weight = weights.front();
      for (const int64_t rows : lab_.options.few_rows) {
        ANNULUS_ASSIGN_OR_RETURN(TurnedProducts products, lab_.inputs->MakeProducts(weights, rows));
        DeviceBuffer* const outputs[] = {&products.output()};
        ANNULUS_RETURN_IF_ERROR(
            TimeTrial({op, dtype, rows, lab_.FlopsOf(weight, rows), weight.storage.size()}, outputs,
                      [&](const OpTable& ops) { return products.Multiply(*lab_.stream, ops); }));
      }
    }
    return absl::OkStatus();
  }

  // The columns of a layer's matrices.
  struct LayerShape {
    int64_t hidden;
    int64_t keys;
    int64_t wide;
  };

  // Calls `time` with a layer of each number of rows.
  absl::Status ForLayers(DType dtype, const LayerShape& shape, const std::vector<int64_t>& sizes,
                         absl::FunctionRef<absl::Status(int64_t, LayerRun&)> time) {
    LayerMatrices matrices;
    const std::tuple<std::vector<PackedMatrix>*, int64_t, int64_t> kinds[] = {
        {&matrices.query, shape.hidden, shape.hidden},
        {&matrices.key, shape.hidden, shape.keys},
        {&matrices.wide, shape.hidden, shape.wide},
        {&matrices.down, shape.wide, shape.hidden}};
    for (const auto& [weights, in, out] : kinds) {
      ANNULUS_ASSIGN_OR_RETURN(*weights, lab_.inputs->MakeWeights(dtype, in, out));
    }
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer norm,
                             lab_.inputs->UploadNormal(static_cast<size_t>(shape.hidden)));
    for (const int64_t rows : sizes) {
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer residual,
                               lab_.inputs->UploadNormal(static_cast<size_t>(rows * shape.hidden)));
      ANNULUS_ASSIGN_OR_RETURN(
          LayerRun layer,
          LayerRun::Create(lab_.backend, matrices, rows, residual.as<float>(), norm.as<float>()));
      ANNULUS_RETURN_IF_ERROR(time(rows, layer));
    }
    return absl::OkStatus();
  }

  absl::Status TimeLayerTrials(DType dtype) {
    const LayerShape shape{lab_.options.hidden,
                           int64_t{lab_.options.kv_heads} * lab_.options.head_dim,
                           lab_.options.intermediate};
    return ForLayers(dtype, shape, lab_.options.layer_rows,
                     [&](int64_t rows, LayerRun& layer) -> absl::Status {
                       if (lab_.Named("fp8_trial")) {
                         ANNULUS_RETURN_IF_ERROR(TimeCodedRows(dtype, rows, layer));
                       }
                       if (!lab_.Named("overlap_trial")) return absl::OkStatus();
                       return TimeOverlap(dtype, rows, layer);
                     });
  }

  absl::Status TimeWarpgroupTrial(DType dtype) {
    const OpTable& trial = *lab_.options.warpgroup_trial;
    const LayerShape shape{lab_.options.trial_hidden, lab_.options.trial_keys,
                           lab_.options.trial_intermediate};
    return ForLayers(dtype, shape, lab_.options.wgmma_rows,
                     [&](int64_t rows, LayerRun& layer) -> absl::Status {
                       Trial what{"wgmma_trial", dtype, rows, layer.flops()};
                       what.same_bits = false;
                       return TimeWays(what, layer.outputs(), {lab_.ops.name, trial.name},
                                       {[&] { return layer.Run(lab_.ops, *lab_.stream); },
                                        [&] { return layer.Run(trial, *lab_.stream); }});
                     });
  }

  // The products are the trial's in both ways, so that only the rows before them differ.
  absl::Status TimeCodedRows(DType dtype, int64_t rows, LayerRun& layer) {
    OpTable apart = *lab_.options.trial;
    apart.norm = lab_.ops.norm;
    apart.gated_mul = lab_.ops.gated_mul;
    return TimeTrial({"fp8_trial", dtype, rows, layer.flops()}, layer.outputs(),
                     [&](const OpTable& ops) {
                       return layer.Run(&ops == &lab_.ops ? apart : ops, *lab_.stream);
                     });
  }

  // By the table, and by the trial: each with kernels that overlap, and with others.
  absl::Status TimeOverlap(DType dtype, int64_t rows, LayerRun& layer) {
    for (const OpTable* const ops : {&lab_.ops, lab_.options.trial}) {
      const auto run = [&](bool overlap) {
        lab_.options.overlap(*lab_.stream, overlap);
        const absl::Status status = layer.Run(*ops, *lab_.stream);
        lab_.options.overlap(*lab_.stream, false);
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
    ANNULUS_ASSIGN_OR_RETURN(way.stream, lab_.backend.CreateStream(1));
    lab_.options.overlap(*way.stream, overlap);
    ANNULUS_ASSIGN_OR_RETURN(StepRun step,
                             StepRun::Create(lab_.backend, lab_.ops, *lab_.inputs, lab_.options));
    way.step = std::make_unique<StepRun>(std::move(step));
    ANNULUS_ASSIGN_OR_RETURN(
        OpTimer timer,
        OpTimer::Create(lab_.backend, *way.stream, lab_.options.enough_seconds / kTurns, 0));
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
    const TrialNames names{lab_.ops.name, absl::StrCat(lab_.ops.name, kOverlapping)};
    ANNULUS_RETURN_IF_ERROR(Check(what, names, left[0], left[1]));
    for (int turn = 0; turn < kTurns; ++turn) {
      for (StepWay& way : ways) {
        ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, way.timer->TimeAlone([&] {
          return way.step->RunHeld(*way.stream);
        }));
        way.device.push_back(seconds.device);
        way.host.push_back(seconds.host);
      }
    }
    const OpSeconds old{Median(ways[0].device), Median(ways[0].host), 0, 1};
    const OpSeconds seconds{Median(ways[1].device), Median(ways[1].host), 0, 1};
    Row row = RowOfTrial(what, names, old, seconds);
    lab_.Report(row, seconds);
    return absl::OkStatus();
  }

  // Of one step.
  static int64_t LaunchesOf(const Stream& stream) {
    const GraphCounts counts = stream.graph_counts();
    return counts.replayed / std::max<int64_t>(counts.whole + counts.in_pieces, 1);
  }

  // The products of a small model's layer, but for those of keys and values.
  absl::Status TimeLinearTrial() {
    const int64_t hidden = lab_.options.trial_hidden;
    const int64_t wide = lab_.options.trial_intermediate;
    std::vector<std::vector<PackedMatrix>> kinds;
    for (const auto& [in, out] : {std::pair(hidden, hidden), {hidden, wide}, {wide, hidden}}) {
      ANNULUS_ASSIGN_OR_RETURN(kinds.emplace_back(),
                               lab_.inputs->MakeWeights(DType::kBF16, in, out));
    }
    const auto layer = {0, 0, 1, 1, 2};  // query and output, gate and up, down
    for (const int64_t rows : lab_.options.trial_rows) {
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer input,
                               lab_.inputs->UploadNormal(static_cast<size_t>(rows * wide)));
      ANNULUS_ASSIGN_OR_RETURN(
          DeviceBuffer output,
          lab_.backend.Allocate(static_cast<size_t>(rows * wide) * sizeof(float)));
      DeviceBuffer* const outputs[] = {&output};
      size_t next = 0;  // all matrices of a kind are alike
      const auto run = [&](const OpTable& ops) -> absl::Status {
        for (const int kind : layer) {
          const PackedMatrix& weight = kinds[kind][next++ % kinds[kind].size()];
          LinearParams params;
          params.input = {input.as<float>(), rows, weight.in_features, weight.in_features};
          params.weight = &weight;
          params.output = {output.as<float>(), rows, weight.out_features, weight.out_features};
          ANNULUS_RETURN_IF_ERROR(ops.linear(*lab_.stream, params));
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
                             lab_.inputs->MakeSequence(tokens, tokens, DType::kBF16));
    const AttentionItem item = lab_.inputs->ItemOf(sequence, {});
    DeviceBuffer* const outputs[] = {&sequence.o, &sequence.lse};
    const auto run = [&](const OpTable& ops) {
      return lab_.inputs->Attend(ops, *lab_.stream, sequence, item);
    };
    const double flops = lab_.CausalFlops(tokens);
    if (lab_.Named("prefill_trial")) {
      ANNULUS_RETURN_IF_ERROR(
          TimeTrial({"prefill_trial", DType::kBF16, tokens, flops}, outputs, run));
    }
    if (!lab_.Named("pairs_trial")) return absl::OkStatus();
    const OpTable& trial = *lab_.options.trial;
    const OpTable& pairs = *lab_.options.pairs;
    return TimeWays({"pairs_trial", DType::kBF16, tokens, flops}, outputs, {trial.name, pairs.name},
                    {[&] { return run(trial); }, [&] { return run(pairs); }});
  }

  // Over pages of bf16, and of fp8 by the table and by products of e4m3.
  absl::Status TimeFloat8Trial(int32_t tokens) {
    const OpTable& trial = *lab_.options.float8_trial;
    ANNULUS_ASSIGN_OR_RETURN(Sequence wide,
                             lab_.inputs->MakeSequence(tokens, tokens, DType::kBF16));
    ANNULUS_ASSIGN_OR_RETURN(Sequence coded,
                             lab_.inputs->MakeSequence(tokens, tokens, DType::kF8E4M3));
    const AttentionItem wide_item = lab_.inputs->ItemOf(wide, {});
    const AttentionItem coded_item = lab_.inputs->ItemOf(coded, {});
    const std::function<absl::Status()> runs[] = {
        [&] { return lab_.inputs->Attend(lab_.ops, *lab_.stream, wide, wide_item); },
        [&] { return lab_.inputs->Attend(lab_.ops, *lab_.stream, coded, coded_item); },
        [&] { return lab_.inputs->Attend(trial, *lab_.stream, coded, coded_item); }};
    DeviceBuffer* const outputs[] = {&coded.o};
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> old, OutputsOf(runs[1], outputs));
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> own, OutputsOf(runs[2], outputs));
    const double error = RelativeError(own, old);
    if (!(error <= kMostFloat8Error)) {
      return absl::InternalError(absl::StrCat("prefill_fp8_trial of ", tokens, ": ", trial.name,
                                              " is ", error, " off ", lab_.ops.name,
                                              "; allowed: ", kMostFloat8Error));
    }
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<OpSeconds> seconds, lab_.timer->TimeInTurn(runs));
    Row row = lab_.RowOf("prefill_fp8_trial", DTypeName(DType::kF8E4M3), tokens, seconds[2]);
    row.Text("trial", trial.name);
    OpLab::AddFlops(row, lab_.CausalFlops(tokens), seconds[2]);
    row.Number("old_seconds", seconds[1].device, Row::Unit::kSeconds);
    row.Number("ratio_to_old", seconds[2].device / seconds[1].device);
    row.Number("bf16_seconds", seconds[0].device, Row::Unit::kSeconds);
    row.Number("error", error);
    lab_.Report(row, seconds[2]);
    return absl::OkStatus();
  }

  // The root mean square of the difference of float32 numbers, over that of `expected`.
  static double RelativeError(std::span<const std::byte> actual,
                              std::span<const std::byte> expected) {
    double difference = 0;
    double size = 0;
    for (size_t at = 0; at < expected.size(); at += sizeof(float)) {
      float a = 0;
      float b = 0;
      std::memcpy(&a, &actual[at], sizeof(a));
      std::memcpy(&b, &expected[at], sizeof(b));
      difference += (double{a} - b) * (double{a} - b);
      size += double{b} * b;
    }
    return std::sqrt(difference / size);
  }

  struct Trial {
    const char* op;
    DType dtype;
    int64_t size;
    double flops;
    size_t bytes = 0;       // of weights, if they bound the time
    bool same_bits = true;  // else other bits are counted, of float32 values
  };

  // Of the old way and the new one.
  struct TrialNames {
    std::string old_way;
    std::string new_way;
  };

  // Times `run` by the table and by the trial in turn.
  absl::Status TimeTrial(const Trial& what, std::span<DeviceBuffer* const> outputs,
                         const std::function<absl::Status(const OpTable&)>& run) {
    return TimeWays(what, outputs, {lab_.ops.name, lab_.options.trial->name},
                    {[&] { return run(lab_.ops); }, [&] { return run(*lab_.options.trial); }});
  }

  // Times the old way and the new one in turn. INTERNAL if the first kMostCompared bytes of each
  // output have other bits, or if those are counted, values that are not close.
  absl::Status TimeWays(const Trial& what, std::span<DeviceBuffer* const> outputs,
                        const TrialNames& names,
                        const std::array<std::function<absl::Status()>, 2>& ways) {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> old, OutputsOf(ways[0], outputs));
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> trial, OutputsOf(ways[1], outputs));
    ANNULUS_RETURN_IF_ERROR(Check(what, names, old, trial));
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<OpSeconds> seconds, lab_.timer->TimeInTurn(ways));
    Row row = RowOfTrial(what, names, seconds[0], seconds[1]);
    if (!what.same_bits) row.Number("other_bits", OtherBits(old, trial), Row::Unit::kShare);
    lab_.Report(row, seconds[1]);
    return absl::OkStatus();
  }

  static absl::Status Check(const Trial& what, const TrialNames& names,
                            const std::vector<std::byte>& old,
                            const std::vector<std::byte>& trial) {
    if (what.same_bits ? trial == old : AreClose(old, trial)) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(what.op, " of ", DTypeName(what.dtype), ", ", what.size, ": ", names.new_way,
                     " has other ", what.same_bits ? "bits" : "values", " than ", names.old_way));
  }

  Row RowOfTrial(const Trial& what, const TrialNames& names, const OpSeconds& old,
                 const OpSeconds& seconds) const {
    Row row = OpLab::RowOf(names.old_way, what.op, DTypeName(what.dtype), what.size, seconds);
    row.Text("trial", names.new_way);
    if (what.flops > 0) OpLab::AddFlops(row, what.flops, seconds);
    if (what.bytes > 0) lab_.AddBytes(row, static_cast<double>(what.bytes), seconds);
    row.Number("old_seconds", old.device, Row::Unit::kSeconds);
    row.Number("ratio_to_old", seconds.device / old.device);
    return row;
  }

  // What `run` leaves in outputs that are cleared before.
  absl::StatusOr<std::vector<std::byte>> OutputsOf(const std::function<absl::Status()>& run,
                                                   std::span<DeviceBuffer* const> outputs) {
    const std::vector<std::byte> zeros(kMostCompared);
    for (DeviceBuffer* const output : outputs) {
      const size_t bytes = std::min(output->size(), zeros.size());
      ANNULUS_RETURN_IF_ERROR(lab_.backend.Copy(*lab_.stream, output->data(), zeros.data(), bytes));
    }
    ANNULUS_RETURN_IF_ERROR(run());
    return ReadOutputs(outputs);
  }

  absl::StatusOr<std::vector<std::byte>> ReadOutputs(std::span<DeviceBuffer* const> outputs) {
    std::vector<std::byte> left;
    for (const DeviceBuffer* const output : outputs) {
      const size_t bytes = std::min(output->size(), kMostCompared);
      left.resize(left.size() + bytes);
      ANNULUS_RETURN_IF_ERROR(lab_.backend.Copy(*lab_.stream, left.data() + left.size() - bytes,
                                                output->data(), bytes));
      ANNULUS_RETURN_IF_ERROR(lab_.stream->Synchronize());
    }
    return left;
  }

  OpLab& lab_;
};

}  // namespace

absl::Status MeasureTrials(OpLab& lab) { return TrialTimes(lab).Run(); }

}  // namespace annulus::bench
