#ifndef ANNULUS_ENGINE_RING_RING_SHAPE_H_
#define ANNULUS_ENGINE_RING_RING_SHAPE_H_

#include <cstddef>

#include "kernels/ops/attention.h"

namespace annulus {

// What a layer attends with.
struct RingShape {
  KvPageShape shape;            // of its keys and values in a page
  size_t layer_page_bytes = 0;  // OpTable::kv_page_bytes of it
  int heads = 0;                // of queries
  float scale = 1;              // of scores
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_RING_SHAPE_H_
