#ifndef ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_
#define ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/base/device_buffer.h"
#include "kernels/registry.h"

namespace annulus {

// Tokens of one bound, as in Quest (arXiv 2406.10774). The box around 16 keys is far smaller than
// the box around a page of 64, so fewer pages look better than they are.
inline constexpr int kBoundTokens = 16;

// Summaries of one layer's keys, page by page, of one sequence on one rank. A page is summarised
// once, when it is complete: what is written never changes. Not thread-safe.
class PageSummaries {
 public:
  // Bounds of each kBoundTokens tokens of a page, or its mean.
  enum class Kind : uint8_t { kBounds, kMean };

  explicit PageSummaries(Kind kind) : kind_(kind) {}

  // Summarises the complete pages among `pages`: all pages of the sequence on this rank, ascending,
  // of which earlier calls saw the first ones.
  absl::Status Extend(Backend& backend, const OpTable& ops, Stream& stream,
                      const KvPageShape& shape, std::span<const KvPageView> pages);

  int64_t pages() const { return pages_; }
  // Summaries of one page.
  int parts(const KvPageShape& shape) const {
    return kind_ == Kind::kMean ? 1 : shape.page_tokens / kBoundTokens;
  }
  // [pages, parts, kv_heads * k_dim], in memory of the host that ops read; equal where the kind is
  // kMean.
  const float* least() const { return low_.as<float>(); }
  const float* greatest() const { return high_.size() == 0 ? least() : high_.as<float>(); }

 private:
  Kind kind_;
  int64_t pages_ = 0;
  DeviceBuffer low_;
  DeviceBuffer high_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_PAGE_SUMMARIES_H_
