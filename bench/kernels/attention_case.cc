#include "bench/kernels/attention_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// Normal numbers from a table: drawing each anew would take longer than the attention.
class Normals {
 public:
  explicit Normals(uint32_t seed) : random_(seed), table_(size_t{1} << 16) {
    std::normal_distribution<float> normal;
    for (float& value : table_) value = normal(random_);
  }
  void Fill(float* values, size_t count) {
    size_t at = random_() % table_.size();
    for (size_t i = 0; i < count; ++i) {
      if (++at >= table_.size()) at = random_() % table_.size();
      values[i] = table_[at];
    }
  }

 private:
  std::mt19937 random_;
  std::vector<float> table_;
};

constexpr int32_t kListRows = 64;

}  // namespace

absl::StatusOr<AttentionCase> AttentionCase::Make(const OpTable& ops, Backend& backend,
                                                  const AttentionShape& shape) {
  AttentionCase result;
  result.ops_ = &ops;
  result.page_ = shape.page;
  result.group_ = shape.group;
  result.shards_ = shape.shards;
  ANNULUS_RETURN_IF_ERROR(result.FillPages(shape, backend));
  for (int b = 0; b < shape.blocks; ++b) {
    const double middle = (b + 0.5) / shape.blocks * shape.tokens;
    const int32_t last = shape.tokens - shape.block_rows;
    const int32_t first =
        shape.blocks == 1
            ? last
            : std::clamp(static_cast<int32_t>(middle) - shape.block_rows / 2, 0, last);
    result.AddItem(shape, first / shape.page.page_tokens * shape.page.page_tokens, b + 2);
  }
  return result;
}

absl::Status AttentionCase::FillPages(const AttentionShape& shape, Backend& backend) {
  const int32_t page_tokens = shape.page.page_tokens;
  const int32_t pages = (shape.tokens + page_tokens - 1) / page_tokens;
  const size_t page_bytes = ops_->kv_page_bytes(shape.page);
  const size_t bytes = pages * page_bytes;
  kv_bytes_ = static_cast<double>(bytes);
  copies_ = std::max<int64_t>(1, (shape.memory_bytes + bytes - 1) / bytes);
  memory_ = {static_cast<std::byte*>(std::aligned_alloc(
                 size_t{2} << 20, (copies_ * bytes + (2 << 20) - 1) / (2 << 20) * (2 << 20))),
             std::free};
  if (memory_ == nullptr) {
    return absl::ResourceExhaustedError("no memory for the keys and values of this case");
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, backend.CreateStream(1));
  Normals normals(1);
  const int64_t k_cols = int64_t{shape.page.kv_heads} * shape.page.k_dim;
  const int64_t v_cols = int64_t{shape.page.kv_heads} * shape.page.v_dim;
  std::vector<float> k(page_tokens * k_cols);
  std::vector<float> v(page_tokens * v_cols);
  for (int32_t p = 0; p < pages; ++p) {
    normals.Fill(k.data(), k.size());
    normals.Fill(v.data(), v.size());
    const int32_t count = std::min(page_tokens, shape.tokens - p * page_tokens);
    const std::vector<std::byte*> at(count, memory_.get() + p * page_bytes);
    std::vector<int32_t> slots(count);
    for (int32_t s = 0; s < count; ++s) slots[s] = s;
    ANNULUS_RETURN_IF_ERROR(ops_->kv_append(*stream, {shape.page,
                                                      {k.data(), count, k_cols, k_cols},
                                                      {v.data(), count, v_cols, v_cols},
                                                      at,
                                                      slots}));
  }
  for (int64_t copy = 0; copy < copies_; ++copy) {
    std::byte* const first = memory_.get() + copy * bytes;
    if (copy > 0) std::memcpy(first, memory_.get(), bytes);
    for (int32_t p = 0; p < pages; ++p) {
      views_.push_back({first + p * page_bytes, p * page_tokens,
                        std::min(page_tokens, shape.tokens - p * page_tokens)});
    }
  }
  return absl::OkStatus();
}

void AttentionCase::AddItem(const AttentionShape& shape, int32_t first, uint32_t seed) {
  Item item;
  const int64_t heads = int64_t{shape.page.kv_heads} * shape.group;
  for (int32_t r = 0; r < shape.block_rows; ++r) item.positions.push_back(first + r);
  item.query.resize(shape.block_rows * heads * shape.page.k_dim);
  Normals(seed).Fill(item.query.data(), item.query.size());
  item.o.resize(shape.block_rows * heads * shape.page.v_dim);
  item.lse.resize(shape.block_rows * heads);
  items_.push_back(std::move(item));
  if (shape.density < 1) {
    AddLists(shape, seed);
  } else {
    for (const int32_t position : items_.back().positions) {
      flops_ += 2.0 * heads * (shape.page.k_dim + shape.page.v_dim) * (position + 1.0);
    }
  }
}

void AttentionCase::AddLists(const AttentionShape& shape, uint32_t seed) {
  Item& item = items_.back();
  std::mt19937 random(seed);
  const double heads = static_cast<double>(shape.page.kv_heads) * shape.group;
  const int32_t page_tokens = shape.page.page_tokens;
  item.offsets.push_back(0);
  double chosen = 0;
  double all = 0;
  for (int32_t row = 0; row < shape.block_rows; row += kListRows) {
    item.block_rows.push_back(row);
    const int32_t end = std::min(shape.block_rows, row + kListRows);
    const int32_t diagonal = item.positions[end - 1] / page_tokens;
    for (int32_t p = 0; p <= diagonal; ++p) {
      const bool own = p == 0 || (p + 1) * page_tokens > item.positions[row];
      const bool listed = own || static_cast<double>(random()) < shape.density * 0x1p32;
      if (listed) item.pages.push_back(p);
      for (int32_t r = row; r < end; ++r) {
        const double keys = std::clamp(item.positions[r] + 1 - p * page_tokens, 0, page_tokens);
        all += keys;
        if (listed) chosen += keys;
      }
    }
    item.offsets.push_back(static_cast<int32_t>(item.pages.size()));
  }
  item.block_rows.push_back(shape.block_rows);
  flops_ += 2 * heads * (shape.page.k_dim + shape.page.v_dim) * chosen;
  density_ = chosen / all;
}

absl::Status AttentionCase::Run(Stream& stream) {
  const int heads = page_.kv_heads * group_;
  const size_t count = views_.size() / copies_;
  const auto pages = std::span(views_).subspan(copy_ * count, count);
  copy_ = (copy_ + 1) % copies_;
  std::vector<AttentionItem> items;
  for (Item& own : items_) {
    AttentionItem item;
    const int64_t rows = own.positions.size();
    const int64_t cols = int64_t{heads} * page_.k_dim;
    item.query = {own.query.data(), rows, cols, cols};
    item.positions = own.positions;
    item.pages = pages;
    item.state = {own.o.data(), own.lse.data(), rows, heads, page_.v_dim};
    if (!own.offsets.empty()) {
      item.blocks = {false, 1, own.block_rows, own.offsets, own.pages};
    }
    items.push_back(item);
  }
  AttentionParams params;
  params.shape = page_;
  params.heads = heads;
  params.scale = 1 / std::sqrt(static_cast<float>(page_.k_dim));
  params.shards = shards_;
  params.items = items;
  return ops_->attention(stream, params);
}

}  // namespace annulus::bench
