#include "engine/pages/page_pieces.h"

namespace annulus {

PagePieces PiecesOf(const RankPort& ranks, PageId id) {
  PagePieces pieces;
  if (ranks.local_pages(id.rank) == nullptr) return pieces;
  const KvPool& pool = *ranks.local_pages(id.rank);
  for (int layer = 0; layer < pool.geometry().layers_per_page; ++layer) {
    pieces.emplace_back(pool.LayerPage(id.page, layer), pool.geometry().layer_page_bytes);
  }
  return pieces;
}

}  // namespace annulus
