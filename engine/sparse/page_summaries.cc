#include "engine/sparse/page_summaries.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Makes room for `needed` bytes, of which `used` are kept.
absl::Status Grow(Backend& backend, size_t used, size_t needed, DeviceBuffer& buffer) {
  if (needed <= buffer.size()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer larger,
                           backend.AllocateHost(std::max(needed, 2 * buffer.size())));
  if (used > 0) std::memcpy(larger.data(), buffer.data(), used);
  buffer = std::move(larger);
  return absl::OkStatus();
}

}  // namespace

absl::Status PageSummaries::Extend(Backend& backend, const OpTable& ops, Stream& stream,
                                   const KvPageShape& shape, std::span<const KvPageView> pages) {
  size_t complete = static_cast<size_t>(pages_);
  while (complete < pages.size() && pages[complete].tokens == shape.page_tokens) ++complete;
  const auto first = static_cast<size_t>(pages_);
  if (complete == first) return absl::OkStatus();
  const size_t columns = static_cast<size_t>(shape.kv_heads) * shape.k_dim * parts(shape);
  KeySummaryParams params;
  params.shape = shape;
  params.parts = parts(shape);
  params.pages = pages.subspan(first, complete - first);
  const size_t used = first * columns * sizeof(float);
  const size_t needed = complete * columns * sizeof(float);
  ANNULUS_RETURN_IF_ERROR(Grow(backend, used, needed, low_));
  if (kind_ == Kind::kMean) {
    params.mean = low_.as<float>() + first * columns;
  } else {
    ANNULUS_RETURN_IF_ERROR(Grow(backend, used, needed, high_));
    params.least = low_.as<float>() + first * columns;
    params.greatest = high_.as<float>() + first * columns;
  }
  ANNULUS_RETURN_IF_ERROR(ops.key_summary(stream, params));
  ANNULUS_RETURN_IF_ERROR(stream.Synchronize());
  pages_ = static_cast<int64_t>(complete);
  return absl::OkStatus();
}

}  // namespace annulus
