#include "bench/gpu/op_times.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "bench/gpu/layer_run.h"
#include "bench/gpu/op_timer.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr int kPageTokens = 64;
constexpr int32_t kRowsAtOnce = 4096;  // of keys, values or weights that are drawn; they repeat
constexpr double kListsCost = 0.05;    // of a dense run, that lists may take beside their pairs
constexpr size_t kMostCompared = size_t{64} << 20;  // bytes of an output

// Keys, values and queries of one layer, all over the device's memory.
struct Sequence {
  KvPageShape shape;
  std::vector<KvPageView> pages;
  std::vector<int32_t> positions;  // of the query rows
  DeviceBuffer slab;
  DeviceBuffer query;  // [rows, heads * head_dim]
  DeviceBuffer o;
  DeviceBuffer lse;
};

// Lists of 64-token blocks for every 64 rows: the diagonal and others drawn at random.
struct Lists {
  std::vector<int32_t> rows;
  std::vector<int32_t> offsets{0};
  std::vector<int32_t> pages;
  double density = 0;  // share of the causal blocks

  BlockLists view() const { return {false, 1, rows, offsets, pages}; }
};

Lists DrawLists(int32_t tokens, double density) {
  std::mt19937 random(1);
  Lists lists;
  double all = 0;
  for (int32_t block = 0; block * kPageTokens < tokens; ++block) {
    lists.rows.push_back(block * kPageTokens);
    for (int32_t page = 0; page < block; ++page) {
      if (static_cast<double>(random()) < density * 0x1p32) lists.pages.push_back(page);
    }
    lists.pages.push_back(block);
    lists.offsets.push_back(static_cast<int32_t>(lists.pages.size()));
    all += block + 1;
  }
  lists.rows.push_back(tokens);
  lists.density = static_cast<double>(lists.pages.size()) / all;
  return lists;
}

std::vector<float> Normal(size_t count, float deviation = 1) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

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
    if (Wanted("copy")) ReportCopy();
    if (Wanted("decode")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8}) {
        ANNULUS_RETURN_IF_ERROR(TimeDecode(dtype));
      }
    }
    if (Wanted("linear")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8, DType::kI4G64}) {
        ANNULUS_ASSIGN_OR_RETURN(const std::vector<PackedMatrix> weights,
                                 MakeWeights(dtype, options_.hidden, options_.intermediate));
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
    Row row;
    row.Text("kernels", ops_.name).Text("op", op).Text("dtype", dtype).Int("size", size);
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

  // So many normal numbers; some millions are drawn, and repeat.
  absl::StatusOr<DeviceBuffer> UploadNormal(size_t count) {
    const std::vector<float> values = Normal(std::min<size_t>(count, size_t{1} << 22));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer buffer, backend_.Allocate(count * sizeof(float)));
    for (size_t at = 0; at < count; at += values.size()) {
      const size_t part = std::min(values.size(), count - at);
      ANNULUS_RETURN_IF_ERROR(
          backend_.Copy(*stream_, buffer.as<float>() + at, values.data(), part * sizeof(float)));
    }
    ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
    return buffer;
  }

  // `tokens` of keys and values; the last `rows` of them attend.
  absl::StatusOr<Sequence> MakeSequence(int32_t tokens, int32_t rows, DType dtype) {
    Sequence sequence;
    sequence.shape = {kPageTokens, options_.kv_heads, options_.head_dim, options_.head_dim, dtype};
    const size_t page_bytes = ops_.kv_page_bytes(sequence.shape);
    const int32_t pages = (tokens + kPageTokens - 1) / kPageTokens;
    ANNULUS_ASSIGN_OR_RETURN(sequence.slab, backend_.Allocate(page_bytes * pages));
    for (int32_t page = 0; page < pages; ++page) {
      const int32_t first = page * kPageTokens;
      sequence.pages.push_back(
          {sequence.slab.data() + page * page_bytes, first, std::min(kPageTokens, tokens - first)});
    }
    ANNULUS_RETURN_IF_ERROR(FillPages(tokens, sequence));
    for (int32_t row = tokens - rows; row < tokens; ++row) sequence.positions.push_back(row);
    const auto elements = static_cast<size_t>(rows) * options_.heads * options_.head_dim;
    ANNULUS_ASSIGN_OR_RETURN(sequence.query, UploadNormal(elements));
    ANNULUS_ASSIGN_OR_RETURN(sequence.o, backend_.Allocate(elements * sizeof(float)));
    ANNULUS_ASSIGN_OR_RETURN(sequence.lse, backend_.Allocate(static_cast<size_t>(rows) *
                                                             options_.heads * sizeof(float)));
    return sequence;
  }

  absl::Status FillPages(int32_t tokens, Sequence& sequence) {
    const int64_t columns = int64_t{options_.kv_heads} * options_.head_dim;
    const int32_t most = std::min(kRowsAtOnce, tokens);
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer rows, UploadNormal(static_cast<size_t>(most * columns)));
    for (int32_t first = 0; first < tokens; first += most) {
      const int32_t count = std::min(most, tokens - first);
      std::vector<std::byte*> pages;
      std::vector<int32_t> slots;
      for (int32_t t = first; t < first + count; ++t) {
        pages.push_back(const_cast<std::byte*>(sequence.pages[t / kPageTokens].data));
        slots.push_back(t % kPageTokens);
      }
      const ConstMatrixView view{rows.as<float>(), count, columns, columns};
      ANNULUS_RETURN_IF_ERROR(ops_.kv_append(*stream_, {sequence.shape, view, view, pages, slots}));
    }
    return stream_->Synchronize();
  }

  AttentionItem ItemOf(Sequence& sequence, const BlockLists& lists) const {
    const auto rows = static_cast<int64_t>(sequence.positions.size());
    const int64_t columns = int64_t{options_.heads} * options_.head_dim;
    AttentionItem item;
    item.query = {sequence.query.as<float>(), rows, columns, columns};
    item.positions = sequence.positions;
    item.pages = sequence.pages;
    item.blocks = lists;
    item.state = {sequence.o.as<float>(), sequence.lse.as<float>(), rows, options_.heads,
                  options_.head_dim};
    return item;
  }

  absl::Status Attend(const OpTable& ops, const Sequence& sequence, const AttentionItem& item) {
    AttentionParams params;
    if (ops.row_invariant) params.shards = ShardsFor(1);
    params.shape = sequence.shape;
    params.heads = options_.heads;
    params.scale = 1 / std::sqrt(static_cast<float>(options_.head_dim));
    params.items = {&item, 1};
    return ops.attention(*stream_, params);
  }

  absl::StatusOr<OpSeconds> TimeAttention(Sequence& sequence, const BlockLists& lists) {
    const AttentionItem item = ItemOf(sequence, lists);
    return timer_->Time([&] { return Attend(ops_, sequence, item); });
  }

  double CausalFlops(double tokens) const {
    return 4.0 * options_.heads * options_.head_dim * tokens * (tokens + 1) / 2;
  }

  absl::Status TimePrefill(DType dtype, int32_t tokens) {
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(tokens, tokens, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, {}));
    Row row = RowOf("prefill", DTypeName(dtype), tokens, seconds);
    AddFlops(row, CausalFlops(tokens), seconds);
    AddSpeedup(row, "prefill", dtype, tokens, seconds);
    Report(row, seconds);
    return absl::OkStatus();
  }

  absl::Status TimeSparse() {
    const int32_t tokens = options_.sparse_tokens;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(tokens, tokens, DType::kBF16));
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
    if (Named("prefill_trial")) {
      for (const int32_t tokens : options_.trial_sequences) {
        ANNULUS_RETURN_IF_ERROR(TimePrefillTrial(tokens));
      }
    }
    if (Named("linear_trial")) ANNULUS_RETURN_IF_ERROR(TimeLinearTrial());
    if (Named("fp8_trial")) {
      for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
        ANNULUS_RETURN_IF_ERROR(TimeLayerTrial(dtype));
      }
    }
    return absl::OkStatus();
  }

  // The products are the trial's in both ways, so that only the rows before them differ.
  absl::Status TimeLayerTrial(DType dtype) {
    OpTable apart = *options_.trial;
    apart.norm = ops_.norm;
    apart.gated_mul = ops_.gated_mul;
    const int64_t hidden = options_.hidden;
    const int64_t wide = options_.intermediate;
    LayerMatrices matrices;
    ANNULUS_ASSIGN_OR_RETURN(matrices.query, MakeWeights(dtype, hidden, hidden));
    ANNULUS_ASSIGN_OR_RETURN(
        matrices.key, MakeWeights(dtype, hidden, int64_t{options_.kv_heads} * options_.head_dim));
    ANNULUS_ASSIGN_OR_RETURN(matrices.wide, MakeWeights(dtype, hidden, wide));
    ANNULUS_ASSIGN_OR_RETURN(matrices.down, MakeWeights(dtype, wide, hidden));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer norm, UploadNormal(static_cast<size_t>(hidden)));
    for (const int64_t rows : options_.fp8_trial_rows) {
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer residual,
                               UploadNormal(static_cast<size_t>(rows * hidden)));
      ANNULUS_ASSIGN_OR_RETURN(
          LayerRun layer,
          LayerRun::Create(backend_, matrices, rows, residual.as<float>(), norm.as<float>()));
      ANNULUS_RETURN_IF_ERROR(TimeTrial(
          "fp8_trial", dtype, rows, layer.flops(), layer.outputs(),
          [&](const OpTable& ops) { return layer.Run(&ops == &ops_ ? apart : ops, *stream_); }));
    }
    return absl::OkStatus();
  }

  // The products of a small model's layer, but for those of keys and values.
  absl::Status TimeLinearTrial() {
    const int64_t hidden = options_.trial_hidden;
    const int64_t wide = options_.trial_intermediate;
    std::vector<std::vector<PackedMatrix>> kinds;
    for (const auto& [in, out] : {std::pair(hidden, hidden), {hidden, wide}, {wide, hidden}}) {
      ANNULUS_ASSIGN_OR_RETURN(kinds.emplace_back(), MakeWeights(DType::kBF16, in, out));
    }
    const auto layer = {0, 0, 1, 1, 2};  // query and output, gate and up, down
    for (const int64_t rows : options_.trial_rows) {
      ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer input, UploadNormal(static_cast<size_t>(rows * wide)));
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
      ANNULUS_RETURN_IF_ERROR(TimeTrial("linear_trial", DType::kBF16, rows, flops, outputs, run));
    }
    return absl::OkStatus();
  }

  absl::Status TimePrefillTrial(int32_t tokens) {
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(tokens, tokens, DType::kBF16));
    const AttentionItem item = ItemOf(sequence, {});
    DeviceBuffer* const outputs[] = {&sequence.o, &sequence.lse};
    return TimeTrial("prefill_trial", DType::kBF16, tokens, CausalFlops(tokens), outputs,
                     [&](const OpTable& ops) { return Attend(ops, sequence, item); });
  }

  // Times `run` by the table and by the trial in turn. INTERNAL if they leave different bits in the
  // first kMostCompared bytes of each output.
  absl::Status TimeTrial(const char* op, DType dtype, int64_t size, double flops,
                         std::span<DeviceBuffer* const> outputs,
                         const std::function<absl::Status(const OpTable&)>& run) {
    const std::function<absl::Status()> runs[] = {[&] { return run(ops_); },
                                                  [&] { return run(*options_.trial); }};
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> old, OutputsOf(runs[0], outputs));
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::byte> trial, OutputsOf(runs[1], outputs));
    if (trial != old) {
      return absl::InternalError(absl::StrCat(op, " of ", size, ": ", options_.trial->name,
                                              " has other bits than ", ops_.name));
    }
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<OpSeconds> seconds, timer_->TimeInTurn(runs));
    Row row = RowOf(op, DTypeName(dtype), size, seconds[1]);
    row.Text("trial", options_.trial->name);
    AddFlops(row, flops, seconds[1]);
    row.Number("old_seconds", seconds[0].device, Row::Unit::kSeconds);
    row.Number("ratio_to_old", seconds[1].device / seconds[0].device);
    Report(row, seconds[1]);
    return absl::OkStatus();
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
    std::vector<std::byte> left;
    for (const DeviceBuffer* const output : outputs) {
      const size_t bytes = std::min(output->size(), zeros.size());
      left.resize(left.size() + bytes);
      ANNULUS_RETURN_IF_ERROR(
          backend_.Copy(*stream_, left.data() + left.size() - bytes, output->data(), bytes));
      ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
    }
    return left;
  }

  absl::Status TimeDecode(DType dtype) {
    const int32_t tokens = options_.decode_tokens;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(tokens, 1, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, TimeAttention(sequence, {}));
    Row row = RowOf("decode", DTypeName(dtype), tokens, seconds);
    AddBytes(row, static_cast<double>(sequence.slab.size()), seconds);
    AddSpeedup(row, "decode", dtype, tokens, seconds);
    Report(row, seconds);
    return absl::OkStatus();
  }

  // So many bytes of the same matrix that no cache holds what the next product reads.
  absl::StatusOr<std::vector<PackedMatrix>> MakeWeights(DType dtype, int64_t in, int64_t out) {
    const int64_t drawn = std::min(kRowsAtOnce / kPackRows * kPackRows, out);
    const std::vector<float> values = Normal(static_cast<size_t>(drawn * in), 0.02f);
    std::vector<PackedMatrix> weights;
    size_t bytes = 0;
    do {
      ANNULUS_ASSIGN_OR_RETURN(PackedMatrix next, CreateMatrix(ops_, backend_, out, in, dtype));
      if (weights.empty()) {
        for (int64_t first = 0; first < out; first += drawn) {
          const int64_t rows = std::min(drawn, out - first);
          ANNULUS_RETURN_IF_ERROR(
              ops_.pack_rows(next, first, {values.data(), DType::kF32, rows, in}, nullptr));
        }
      } else {
        ANNULUS_RETURN_IF_ERROR(backend_.Copy(*stream_, next.storage.data(),
                                              weights.front().storage.data(), next.storage.size()));
      }
      bytes += next.storage.size();
      weights.push_back(std::move(next));
    } while (bytes < options_.weight_bytes);
    ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
    return weights;
  }

  absl::Status TimeLinear(const std::vector<PackedMatrix>& weights, int64_t rows) {
    const DType dtype = weights.front().dtype;
    const int64_t in = options_.hidden;
    const int64_t out = options_.intermediate;
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer input, UploadNormal(static_cast<size_t>(rows * in)));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer output,
                             backend_.Allocate(static_cast<size_t>(rows * out) * sizeof(float)));
    LinearParams params;
    params.input = {input.as<float>(), rows, in, in};
    params.output = {output.as<float>(), rows, out, out};
    params.activations = dtype == DType::kF8E4M3 ? Activations::kFp8 : Activations::kFloat;
    size_t next = 0;
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds seconds, timer_->Time([&] {
      params.weight = &weights[next++ % weights.size()];
      return ops_.linear(*stream_, params);
    }));
    Row row = RowOf("linear", DTypeName(dtype), rows, seconds);
    AddFlops(row, 2.0 * static_cast<double>(rows * in * out), seconds);
    AddBytes(row, static_cast<double>(weights.front().storage.size()), seconds);
    AddSpeedup(row, "linear", dtype, rows, seconds);
    Report(row, seconds);
    return absl::OkStatus();
  }

  // Of one row, what a layer launches: a norm and a product four times, attention, a gated product.
  absl::Status RunStep(const Sequence& sequence, const AttentionItem& item,
                       const PackedMatrix& weight, MatrixView row, MatrixView other) {
    const auto product = [&](ConstMatrixView input, MatrixView output) {
      LinearParams params;
      params.input = input;
      params.weight = &weight;
      params.output = output;
      return ops_.linear(*stream_, params);
    };
    for (int layer = 0; layer < options_.step_layers; ++layer) {
      for (int block = 0; block < 4; ++block) {
        ANNULUS_RETURN_IF_ERROR(ops_.norm(*stream_, {row, other.row(1), {1e-5f}, row, false}));
        ANNULUS_RETURN_IF_ERROR(product(row, other.row_range(0, 1)));
      }
      ANNULUS_RETURN_IF_ERROR(Attend(ops_, sequence, item));
      ANNULUS_RETURN_IF_ERROR(
          ops_.gated_mul(*stream_, {other.row_range(0, 1), row, row, Activation::kSilu, 0, 0}));
    }
    return absl::OkStatus();
  }

  // The same step launched one by one, and held back and launched as a graph.
  absl::Status TimeSteps() {
    const int64_t columns = options_.step_columns;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence,
                             MakeSequence(options_.step_tokens, 1, DType::kBF16));
    const AttentionItem item = ItemOf(sequence, {});
    const std::vector<float> values = Normal(static_cast<size_t>(columns * columns), 0.02f);
    ANNULUS_ASSIGN_OR_RETURN(
        const PackedMatrix weight,
        PackMatrix(ops_, backend_, {values.data(), DType::kF32, columns, columns}, DType::kBF16));
    const auto row_count = static_cast<size_t>(columns);
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer row, UploadNormal(row_count));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer other, UploadNormal(2 * row_count));
    const MatrixView row_view{row.as<float>(), 1, columns, columns};
    const MatrixView other_view{other.as<float>(), 2, columns, columns};
    const auto run = [&] { return RunStep(sequence, item, weight, row_view, other_view); };
    ANNULUS_ASSIGN_OR_RETURN(const OpSeconds single, timer_->TimeAlone(run));
    const GraphCounts before = stream_->graph_counts();
    int64_t steps = 0;
    const auto run_graph = [&]() -> absl::Status {
      ++steps;
      ANNULUS_ASSIGN_OR_RETURN(const auto held, stream_->BeginGraph());
      ANNULUS_RETURN_IF_ERROR(run());
      return held->Launch();
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
  std::map<std::pair<std::string, int64_t>, double> bf16_seconds_;  // of an op and size
};

}  // namespace

absl::Status MeasureOps(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
                        const std::function<void(const Row&)>& report) {
  return OpTimes(backend, ops, options, report).Run();
}

}  // namespace annulus::bench
