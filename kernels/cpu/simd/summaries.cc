// Summaries of pages of the SIMD path, and their scores.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/cpu/simd/scores.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

constexpr float kUnbounded = std::numeric_limits<float>::infinity();

// Keys of slots [panel * 16, panel * 16 + 16) of one head, [k_dim][16].
void ReadPanel(const SimdKernels& isa, const PageLayout& layout, const KvPageShape& shape,
               const KvPageView& page, int head, int panel, float* storage, float* keys) {
  const int64_t k_dim = layout.k_dim();
  const std::byte* const from =
      page.data + layout.k_head(head) +
      panel * kPanel * k_dim * static_cast<int64_t>(DTypeSize(shape.dtype));
  const int64_t count = k_dim * kPanel;
  if (shape.dtype == DType::kI8) {
    const auto* const codes = reinterpret_cast<const int8_t*>(from);
    for (int64_t i = 0; i < count; ++i) storage[i] = codes[i];
  } else if (IsNarrow(shape.dtype)) {
    ConvertToFloat(shape.dtype, from, storage, count);
  } else {
    isa.widen[StorageIndex(shape.dtype)](from, storage, count);
  }
  for (int64_t d = 0; d < shape.k_dim; ++d) {
    for (int s = 0; s < kPanel; ++s) keys[d * kPanel + s] = storage[layout.key_element(s, d)];
  }
  if (shape.dtype != DType::kI8) return;
  float scales[kPanel];
  ReadScales(layout, page, head, panel * kPanel, kPanel, scales);
  for (int64_t d = 0; d < shape.k_dim; ++d) {
    for (int s = 0; s < kPanel; ++s) keys[d * kPanel + s] *= scales[s];
  }
}

}  // namespace

absl::Status KeySummary(const SimdKernels& isa, CpuStream& stream, const KeySummaryParams& params) {
  CheckKeySummary(params);
  const KvPageShape& shape = params.shape;
  const PageLayout layout(isa, shape);
  const int64_t heads = shape.kv_heads;
  const int64_t panel_floats = layout.k_dim() * kPanel;
  ANNULUS_ASSIGN_OR_RETURN(
      std::byte * scratch,
      stream.Scratch(stream.threads() * 2 * panel_floats * static_cast<int64_t>(sizeof(float))));
  float* const floats = reinterpret_cast<float*>(scratch);
  stream.ParallelFor(params.pages.size() * heads, [&](int64_t task, int thread) {
    const KvPageView& page = params.pages[task / heads];
    float* const storage = floats + thread * 2 * panel_floats;
    float* const keys = storage + panel_floats;
    const auto head = static_cast<int>(task % heads);
    for (int part = 0; part < params.parts; ++part) {
      const int begin = part * params.part_tokens();
      const int end = std::min(page.tokens, begin + params.part_tokens());
      std::vector<float> least(shape.k_dim, kUnbounded);
      std::vector<float> greatest(shape.k_dim, -kUnbounded);
      std::vector<float> sum(shape.k_dim, 0.0f);
      for (int slot = begin; slot < end; slot += kPanel) {
        ReadPanel(isa, layout, shape, page, head, slot / kPanel, storage, keys);
        const int slots = std::min(kPanel, end - slot);
        for (int d = 0; d < shape.k_dim; ++d) {
          for (int s = 0; s < slots; ++s) {
            const float key = keys[d * kPanel + s];
            least[d] = std::min(least[d], key);
            greatest[d] = std::max(greatest[d], key);
            sum[d] += key;
          }
        }
      }
      for (float& mean : sum) mean /= static_cast<float>(end - begin);
      const auto store = [&](int64_t plane, const std::vector<float>& values) {
        if (plane < 0) return;
        const int64_t size = params.parts * heads * shape.k_dim;
        float* const to = params.to.At(params.first + task / heads, plane, size);
        std::copy(values.begin(), values.end(), to + (part * heads + head) * shape.k_dim);
      };
      store(params.least, least);
      store(params.greatest, greatest);
      store(params.mean, sum);
    }
  });
  return absl::OkStatus();
}

absl::Status SummaryScores(const SimdKernels& isa, CpuStream& stream,
                           const SummaryScoresParams& params) {
  CheckSummaryScores(params);
  const int group = params.heads / params.kv_heads;
  const int64_t columns = int64_t{params.kv_heads} * params.k_dim;
  const int64_t page_floats = params.parts * columns;
  // Pages [begin, end) of one run.
  const auto score = [&](int64_t row, int64_t begin, int64_t end) {
    for (int kv_head = 0; kv_head < params.kv_heads; ++kv_head) {
      const int64_t head = int64_t{kv_head} * group;
      const int64_t at = int64_t{kv_head} * params.k_dim;
      SummaryBounds bounds;
      bounds.query = params.query.row(row) + head * params.k_dim;
      bounds.least = params.from.At(begin, params.least, page_floats) + at;
      bounds.greatest = params.from.At(begin, params.greatest, page_floats) + at;
      bounds.stride = columns;
      bounds.pages = end - begin;
      bounds.parts = params.parts;
      bounds.heads = group;
      bounds.k_dim = params.k_dim;
      bounds.scores = params.scores + (row * params.heads + head) * params.pages + begin;
      bounds.score_stride = params.pages;
      isa.bound_summaries(bounds);
    }
  };
  for (int64_t row = 0; row < params.query.rows; ++row) {
    stream.ParallelRows(params.pages, 2 * page_floats, [&](int64_t begin, int64_t end) {
      for (int64_t page = begin; page < end;) {
        const int64_t run_end = (page / params.from.pages + 1) * params.from.pages;
        const int64_t next = std::min(end, run_end);
        score(row, page, next);
        page = next;
      }
    });
  }
  return absl::OkStatus();
}

absl::Status RowMeans(CpuStream& stream, const RowMeansParams& params) {
  CheckRowMeans(params);
  const int64_t cols = params.input.cols;
  stream.ParallelFor(static_cast<int64_t>(params.ends.size()), [&](int64_t run, int) {
    const int32_t begin = run == 0 ? 0 : params.ends[run - 1];
    const int32_t end = params.ends[run];
    float* const mean = params.output.row(run);
    std::fill_n(mean, cols, 0.0f);
    for (int32_t r = begin; r < end; ++r) {
      const float* const row = params.input.row(r);
      for (int64_t c = 0; c < cols; ++c) mean[c] += row[c];
    }
    for (int64_t c = 0; c < cols; ++c) mean[c] /= static_cast<float>(end - begin);
  });
  return absl::OkStatus();
}

}  // namespace annulus::cpu
