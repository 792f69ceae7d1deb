#ifndef ANNULUS_ENGINE_MEMORY_KV_POOL_H_
#define ANNULUS_ENGINE_MEMORY_KV_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/memory/align.h"
#include "engine/memory/buffer_pool.h"
#include "engine/memory/page_book.h"
#include "engine/memory/poison.h"
#include "kernels/ops/attention.h"

namespace annulus {

// The contents of a page: `layers_per_page` layers of one cache group, `layer_page_bytes` each
// (OpTable::kv_page_bytes). All pages have the same size, so any page can be used for any group.
struct KvGeometry {
  KvPageShape shape;
  int layers_per_page = 0;      // >= 1
  size_t layer_page_bytes = 0;  // >= 1

  // Distance between two layers' parts in bytes. Each part is aligned to kMemoryAlignment.
  size_t layer_stride() const { return AlignUp(layer_page_bytes); }
  size_t page_bytes() const { return layer_stride() * static_cast<size_t>(layers_per_page); }
  // Bytes of a page in a store: without the padding that aligns its layers.
  size_t stored_bytes() const { return layer_page_bytes * static_cast<size_t>(layers_per_page); }
};

// The memory of one rank's pages: one slab of the rank's BufferPool. Page p occupies bytes [p *
// page_bytes, (p + 1) * page_bytes) of the slab. The coordinator's PageBook records who owns which
// page. LayerPage is thread-safe.
//
// With `poison`, a freed page is filled (poison.h) and inaccessible under AddressSanitizer. When it
// is taken again, the filling must be intact: a write into a freed page terminates the process.
class KvPool {
 public:
  // Creates as many pages as fit into `bytes_limit`. RESOURCE_EXHAUSTED, with numbers, if none fits
  // or the pool cannot allocate the bytes; INVALID_ARGUMENT for an empty geometry. `pool` must
  // outlive the result.
  static absl::StatusOr<std::unique_ptr<KvPool>> Create(BufferPool& pool,
                                                        const KvGeometry& geometry,
                                                        size_t bytes_limit,
                                                        bool poison = kPoisonFreedPages);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // Start of one layer's part of a page. Requires 0 <= page_id < page_count() and 0 <=
  // layer_in_group < layers_per_page.
  std::byte* LayerPage(int32_t page_id, int layer_in_group) const;

  const KvGeometry& geometry() const { return geometry_; }
  int32_t page_count() const { return page_count_; }
  size_t bytes_total() const { return PageBytes(page_count()); }

  // Whether the pool poisons freed pages. If so, the book's hooks must call OnTake and OnFree.
  bool poisons() const { return poison_; }
  void OnTake(const PageBook::Event& page);
  void OnFree(const PageBook::Event& page);

 private:
  KvPool(DeviceBuffer slab, const KvGeometry& geometry, int32_t pages, bool poison);

  size_t PageBytes(int32_t pages) const { return geometry_.page_bytes() * pages; }

  DeviceBuffer slab_;
  std::byte* const base_;
  const KvGeometry geometry_;
  const int32_t page_count_;
  const bool poison_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_KV_POOL_H_
