#include "engine/memory/kv_pool.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<KvPool>> KvPool::Create(BufferPool& pool, const KvGeometry& geometry,
                                                       size_t bytes_limit, bool poison) {
  if (geometry.layers_per_page < 1 || geometry.layer_page_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a page needs at least 1 layer of at least 1 byte, got ",
                     geometry.layers_per_page, " layers of ", geometry.layer_page_bytes, " bytes"));
  }
  const size_t fitting = bytes_limit / geometry.page_bytes();
  if (fitting == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory pool '", pool.name(), "': one page of ", geometry.shape.page_tokens,
                     " tokens takes ", geometry.page_bytes(), " bytes, available for pages are ",
                     bytes_limit, "; give the ranks more memory for keys and values"));
  }
  const auto pages =
      static_cast<int32_t>(std::min<size_t>(fitting, std::numeric_limits<int32_t>::max()));
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer slab,
                           pool.Allocate(geometry.page_bytes() * pages, Lifetime::kPages));
  return std::unique_ptr<KvPool>(
      new KvPool(std::move(slab), geometry, pages, poison && pool.host_accessible()));
}

KvPool::KvPool(DeviceBuffer slab, const KvGeometry& geometry, int32_t pages, bool poison)
    : slab_(std::move(slab)),
      base_(slab_.data()),
      geometry_(geometry),
      page_count_(pages),
      poison_(poison) {}

KvPool::~KvPool() {
  // The slab's next holder may touch all of it.
  if (poison_) AllowAccess(base_, bytes_total());
}

std::byte* KvPool::LayerPage(int32_t page_id, int layer_in_group) const {
  ANNULUS_CHECK(page_id >= 0 && page_id < page_count())
      << "page " << page_id << " of " << page_count();
  ANNULUS_CHECK(layer_in_group >= 0 && layer_in_group < geometry_.layers_per_page)
      << "layer " << layer_in_group << " of " << geometry_.layers_per_page;
  return base_ + PageBytes(page_id) + geometry_.layer_stride() * layer_in_group;
}

void KvPool::OnFree(const PageBook::Event& page) {
  for (int layer = 0; layer < geometry_.layers_per_page; ++layer) {
    FillPoison(LayerPage(page.id.page, layer), geometry_.layer_stride(),
               {.owner = page.owner, .generation = page.generation, .id = page.id.page});
  }
  ForbidAccess(LayerPage(page.id.page, 0), geometry_.page_bytes());
}

void KvPool::OnTake(const PageBook::Event& page) {
  if (page.generation == 0) return;
  AllowAccess(LayerPage(page.id.page, 0), geometry_.page_bytes());
  for (int layer = 0; layer < geometry_.layers_per_page; ++layer) {
    ANNULUS_CHECK(
        PoisonIntact(LayerPage(page.id.page, layer), geometry_.layer_stride(),
                     {.owner = page.owner, .generation = page.generation, .id = page.id.page}))
        << "page " << page.id.page << ", layer " << layer << " was written after it was freed by "
        << page.owner << " (generation " << page.generation << ")";
  }
}

}  // namespace annulus
