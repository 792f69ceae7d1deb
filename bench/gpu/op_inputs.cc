#include "bench/gpu/op_inputs.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr int kPageTokens = 64;
constexpr int32_t kRowsAtOnce = 4096;  // of keys, values or weights that are drawn; they repeat

}  // namespace

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

std::vector<float> Normal(size_t count, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

TurnedProducts::TurnedProducts(const std::vector<PackedMatrix>& weights, DeviceBuffer input,
                               DeviceBuffer output, int64_t rows)
    : weights_(weights), input_(std::move(input)), output_(std::move(output)) {
  const int64_t in = weights.front().in_features;
  const int64_t out = weights.front().out_features;
  params_.input = {input_.as<float>(), rows, in, in};
  params_.output = {output_.as<float>(), rows, out, out};
  const bool codes = weights.front().dtype == DType::kF8E4M3;
  params_.activations = codes ? Activations::kFp8 : Activations::kFloat;
}

absl::Status TurnedProducts::Multiply(Stream& stream, const OpTable& ops) {
  params_.weight = &weights_[next_++ % weights_.size()];
  return ops.linear(stream, params_);
}

absl::StatusOr<DeviceBuffer> OpInputs::UploadNormal(size_t count) {
  const std::vector<float> values = Normal(std::min<size_t>(count, size_t{1} << 22));
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer buffer, backend_.Allocate(count * sizeof(float)));
  for (size_t at = 0; at < count; at += values.size()) {
    const size_t part = std::min(values.size(), count - at);
    ANNULUS_RETURN_IF_ERROR(
        backend_.Copy(stream_, buffer.as<float>() + at, values.data(), part * sizeof(float)));
  }
  ANNULUS_RETURN_IF_ERROR(stream_.Synchronize());
  return buffer;
}

absl::StatusOr<Sequence> OpInputs::MakeSequence(int32_t tokens, int32_t rows, DType dtype) {
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
  ANNULUS_ASSIGN_OR_RETURN(
      sequence.lse, backend_.Allocate(static_cast<size_t>(rows) * options_.heads * sizeof(float)));
  return sequence;
}

absl::Status OpInputs::FillPages(int32_t tokens, Sequence& sequence) {
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
    ANNULUS_RETURN_IF_ERROR(ops_.kv_append(stream_, {sequence.shape, view, view, pages, slots}));
  }
  return stream_.Synchronize();
}

AttentionItem OpInputs::ItemOf(Sequence& sequence, const BlockLists& lists) const {
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

absl::Status OpInputs::Attend(const OpTable& ops, Stream& stream, const Sequence& sequence,
                              const AttentionItem& item) const {
  AttentionParams params;
  if (ops.row_invariant) params.shards = ShardsFor(1);
  params.shape = sequence.shape;
  params.heads = options_.heads;
  params.scale = 1 / std::sqrt(static_cast<float>(options_.head_dim));
  params.items = {&item, 1};
  return ops.attention(stream, params);
}

absl::StatusOr<std::vector<PackedMatrix>> OpInputs::MakeWeights(DType dtype, int64_t in,
                                                                int64_t out) {
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
      ANNULUS_RETURN_IF_ERROR(backend_.Copy(stream_, next.storage.data(),
                                            weights.front().storage.data(), next.storage.size()));
    }
    bytes += next.storage.size();
    weights.push_back(std::move(next));
  } while (bytes < options_.weight_bytes);
  ANNULUS_RETURN_IF_ERROR(stream_.Synchronize());
  return weights;
}

absl::StatusOr<TurnedProducts> OpInputs::MakeProducts(const std::vector<PackedMatrix>& weights,
                                                      int64_t rows) {
  const PackedMatrix& weight = weights.front();
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer input,
                           UploadNormal(static_cast<size_t>(rows * weight.in_features)));
  const auto outputs = static_cast<size_t>(rows * weight.out_features);
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer output, backend_.Allocate(outputs * sizeof(float)));
  return TurnedProducts(weights, std::move(input), std::move(output), rows);
}

}  // namespace annulus::bench
