#include "bench/gpu/op_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int kPageTokens = 64;
constexpr int32_t kRowsAtOnce = 4096;  // of keys and values that are made on the host

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
    if (!options_.prefill_only) ANNULUS_RETURN_IF_ERROR(TimeCopy());
    for (const int32_t tokens : options_.sequences) {
      ANNULUS_RETURN_IF_ERROR(TimePrefill(DType::kBF16, tokens));
    }
    for (const DType dtype : {DType::kF8E4M3, DType::kI8}) {
      ANNULUS_RETURN_IF_ERROR(TimePrefill(dtype, options_.sequences.front()));
    }
    ANNULUS_RETURN_IF_ERROR(TimeSparse());
    if (options_.prefill_only) return absl::OkStatus();
    for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8}) {
      ANNULUS_RETURN_IF_ERROR(TimeDecode(dtype));
    }
    for (const DType dtype : {DType::kBF16, DType::kF8E4M3, DType::kI8, DType::kI4G64}) {
      const auto activations = dtype == DType::kF8E4M3 ? Activations::kFp8 : Activations::kFloat;
      for (const int64_t rows : options_.linear_rows) {
        ANNULUS_RETURN_IF_ERROR(TimeLinear(dtype, activations, rows));
      }
    }
    return TimeSteps();
  }

 private:
  // Median seconds of one run of `op`.
  absl::StatusOr<double> Time(const std::function<absl::Status()>& op) {
    ANNULUS_RETURN_IF_ERROR(op());
    ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
    std::vector<double> seconds;
    double all = 0;
    while (seconds.size() < 3 || (all < options_.enough_seconds && seconds.size() < 1000)) {
      const auto start = std::chrono::steady_clock::now();
      ANNULUS_RETURN_IF_ERROR(op());
      ANNULUS_RETURN_IF_ERROR(stream_->Synchronize());
      seconds.push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      all += seconds.back();
    }
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }

  void Report(const char* op, const std::string& dtype, int64_t tokens, double density,
              double seconds, double flops, double bytes, double ratio) {
    Row row;
    row.Text("kernels", ops_.name)
        .Text("op", op)
        .Text("dtype", dtype)
        .Int("size", tokens)
        .Number("density", density);
    row.Number("seconds", seconds, Row::Unit::kSeconds);
    row.Number("tflops", flops / seconds * 1e-12).Number("gb_per_second", bytes / seconds * 1e-9);
    row.Number("ratio_to_dense", ratio);
    report_(row);
  }

  absl::Status TimeCopy() {
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer from, backend_.Allocate(options_.copied_bytes));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer to, backend_.Allocate(options_.copied_bytes));
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, Time([&] {
                               return backend_.Copy(*stream_, to.data(), from.data(),
                                                    options_.copied_bytes);
                             }));
    const auto bytes = static_cast<double>(options_.copied_bytes);
    Report("copy", "", static_cast<int64_t>(bytes), 1, seconds, 0, 2 * bytes, 1);
    return absl::OkStatus();
  }

  absl::StatusOr<DeviceBuffer> Upload(const std::vector<float>& values, size_t count) {
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
    ANNULUS_ASSIGN_OR_RETURN(sequence.query,
                             Upload(Normal(std::min<size_t>(elements, size_t{1} << 22)), elements));
    ANNULUS_ASSIGN_OR_RETURN(sequence.o, backend_.Allocate(elements * sizeof(float)));
    ANNULUS_ASSIGN_OR_RETURN(sequence.lse, backend_.Allocate(static_cast<size_t>(rows) *
                                                             options_.heads * sizeof(float)));
    return sequence;
  }

  absl::Status FillPages(int32_t tokens, Sequence& sequence) {
    const int64_t columns = int64_t{options_.kv_heads} * options_.head_dim;
    const int32_t most = std::min(kRowsAtOnce, tokens);
    const std::vector<float> values = Normal(static_cast<size_t>(most * columns));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer rows, Upload(values, values.size()));
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

  absl::Status Attend(const Sequence& sequence, const AttentionItem& item) {
    AttentionParams params;
    params.shape = sequence.shape;
    params.heads = options_.heads;
    params.scale = 1 / std::sqrt(static_cast<float>(options_.head_dim));
    params.items = {&item, 1};
    return ops_.attention(*stream_, params);
  }

  absl::StatusOr<double> TimeAttention(Sequence& sequence, const BlockLists& lists) {
    const AttentionItem item = ItemOf(sequence, lists);
    return Time([&] { return Attend(sequence, item); });
  }

  double CausalFlops(double tokens) const {
    return 4.0 * options_.heads * options_.head_dim * tokens * (tokens + 1) / 2;
  }

  absl::Status TimePrefill(DType dtype, int32_t tokens) {
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(tokens, tokens, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, TimeAttention(sequence, {}));
    Report("prefill", std::string(DTypeName(dtype)), tokens, 1, seconds, CausalFlops(tokens), 0, 1);
    return absl::OkStatus();
  }

  absl::Status TimeSparse() {
    const int32_t tokens = options_.sparse_tokens;
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(tokens, tokens, DType::kBF16));
    ANNULUS_ASSIGN_OR_RETURN(const double dense, TimeAttention(sequence, {}));
    for (const double density : options_.densities) {
      const Lists lists = DrawLists(tokens, density);
      ANNULUS_ASSIGN_OR_RETURN(const double seconds, TimeAttention(sequence, lists.view()));
      Report("prefill_blocks", "bf16", tokens, lists.density, seconds,
             CausalFlops(tokens) * lists.density, 0, seconds / dense);
    }
    return absl::OkStatus();
  }

  absl::Status TimeDecode(DType dtype) {
    ANNULUS_ASSIGN_OR_RETURN(Sequence sequence, MakeSequence(options_.decode_tokens, 1, dtype));
    ANNULUS_ASSIGN_OR_RETURN(const double seconds, TimeAttention(sequence, {}));
    Report("decode", std::string(DTypeName(dtype)), options_.decode_tokens, 1, seconds, 0,
           static_cast<double>(sequence.slab.size()), 1);
    return absl::OkStatus();
  }

  absl::Status TimeLinear(DType dtype, Activations activations, int64_t rows) {
    const int64_t in = options_.hidden;
    const int64_t out = options_.intermediate;
    const std::vector<float> values = Normal(static_cast<size_t>(out * in), 0.02f);
    ANNULUS_ASSIGN_OR_RETURN(
        const PackedMatrix weight,
        PackMatrix(ops_, backend_, {values.data(), DType::kF32, out, in}, dtype));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer input,
                             Upload(Normal(static_cast<size_t>(rows * in)), rows * in));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer output,
                             backend_.Allocate(static_cast<size_t>(rows * out) * sizeof(float)));
    LinearParams params;
    params.input = {input.as<float>(), rows, in, in};
    params.weight = &weight;
    params.output = {output.as<float>(), rows, out, out};
    params.activations = activations;
    ANNULUS_ASSIGN_OR_RETURN(const double seconds,
                             Time([&] { return ops_.linear(*stream_, params); }));
    const double flops = 2.0 * static_cast<double>(rows * in * out);
    Report("linear", std::string(DTypeName(dtype)), rows, 1, seconds, flops,
           static_cast<double>(weight.storage.size()), 1);
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
        ANNULUS_RETURN_IF_ERROR(ops_.rms_norm(*stream_, {row, other.row(1), 1e-5f, row, false}));
        ANNULUS_RETURN_IF_ERROR(product(row, other.row_range(0, 1)));
      }
      ANNULUS_RETURN_IF_ERROR(Attend(sequence, item));
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
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer row, Upload(values, row_count));
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer other, Upload(values, 2 * row_count));
    const MatrixView row_view{row.as<float>(), 1, columns, columns};
    const MatrixView other_view{other.as<float>(), 2, columns, columns};
    const auto run = [&] { return RunStep(sequence, item, weight, row_view, other_view); };
    ANNULUS_ASSIGN_OR_RETURN(const double single, Time(run));
    const GraphCounts before = stream_->graph_counts();
    int64_t steps = 0;
    ANNULUS_ASSIGN_OR_RETURN(const double graph, Time([&]() -> absl::Status {
                               ++steps;
                               ANNULUS_ASSIGN_OR_RETURN(const auto held, stream_->BeginGraph());
                               ANNULUS_RETURN_IF_ERROR(run());
                               return held->Launch();
                             }));
    const GraphCounts after = stream_->graph_counts();
    if (after.whole - before.whole < steps - 1) {
      return absl::InternalError(absl::StrCat("of ", steps, " steps ", after.whole - before.whole,
                                              " were one graph: nothing to compare"));
    }
    const int64_t launches = (after.replayed - before.replayed) / steps;
    Report("step", "bf16", launches, 1, single, 0, 0, 1);
    Report("step_graph", "bf16", launches, 1, graph, 0, 0, graph / single);
    return absl::OkStatus();
  }

  Backend& backend_;
  const OpTable& ops_;
  const OpTimesOptions& options_;
  const std::function<void(const Row&)>& report_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace

absl::Status MeasureOps(Backend& backend, const OpTable& ops, const OpTimesOptions& options,
                        const std::function<void(const Row&)>& report) {
  return OpTimes(backend, ops, options, report).Run();
}

}  // namespace annulus
