#include "engine/sparse/page_summaries.h"

#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status PageSummaries::Extend(const OpTable& ops, Stream& stream, const KvPageShape& shape,
                                   Kind kind, std::span<const KvPageView> pages) {
  size_t complete = static_cast<size_t>(pages_);
  while (complete < pages.size() && pages[complete].tokens == shape.page_tokens) ++complete;
  const auto first = static_cast<size_t>(pages_);
  if (complete == first) return absl::OkStatus();
  const size_t columns = static_cast<size_t>(shape.kv_heads) * shape.k_dim;
  KeySummaryParams params;
  params.shape = shape;
  params.pages = pages.subspan(first, complete - first);
  low_.resize(complete * columns);
  if (kind == Kind::kMean) {
    params.mean = low_.data() + first * columns;
  } else {
    high_.resize(complete * columns);
    params.least = low_.data() + first * columns;
    params.greatest = high_.data() + first * columns;
  }
  ANNULUS_RETURN_IF_ERROR(ops.key_summary(stream, params));
  ANNULUS_RETURN_IF_ERROR(stream.Synchronize());
  pages_ = static_cast<int64_t>(complete);
  return absl::OkStatus();
}

}  // namespace annulus
