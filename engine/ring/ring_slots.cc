#include "engine/ring/ring_slots.h"

#include <algorithm>

#include "engine/memory/align.h"

namespace annulus {
namespace {

struct SlotBytes {
  size_t queries = 0;
  size_t pages = 0;   // of one slot
  size_t states = 0;  // of one slot
};

// Parts of a message start at aligned places and have one row or more, so rows of aligned length
// are enough however they are cut into parts.
SlotBytes CountSlots(const RingSlotPlan& plan) {
  const auto row = [](int64_t columns) {
    return AlignUp(static_cast<size_t>(columns) * sizeof(float));
  };
  const auto rows = static_cast<size_t>(plan.rows);
  SlotBytes bytes;
  for (const RingShape& each : plan.shapes) {
    const KvPageShape& shape = each.shape;
    const size_t query = row(int64_t{each.heads} * shape.k_dim);
    const size_t key = row(int64_t{shape.kv_heads} * shape.k_dim);
    const size_t value = row(int64_t{shape.kv_heads} * shape.v_dim);
    const size_t state = row(int64_t{each.heads} * shape.v_dim) + row(each.heads);
    bytes.queries =
        std::max(bytes.queries, static_cast<size_t>(plan.ranks - 1) * rows * (query + key + value));
    bytes.pages =
        std::max(bytes.pages, static_cast<size_t>(plan.pages) * AlignUp(each.layer_page_bytes));
    bytes.states = std::max(bytes.states, rows * static_cast<size_t>(plan.states) * state);
  }
  return bytes;
}

}  // namespace

size_t RingSlots::BytesFor(const RingSlotPlan& plan) {
  const SlotBytes bytes = CountSlots(plan);
  return bytes.queries + 2 * bytes.pages + 2 * bytes.states;
}

RingSlots RingSlots::Cut(std::byte* memory, const RingSlotPlan& plan) {
  const SlotBytes bytes = CountSlots(plan);
  const auto next = [&memory](size_t size) {
    const std::span<std::byte> slot(memory, size);
    memory += size;
    return slot;
  };
  RingSlots slots;
  slots.queries = next(bytes.queries);
  for (auto& slot : slots.pages) slot = next(bytes.pages);
  for (auto& slot : slots.states) slot = next(bytes.states);
  return slots;
}

}  // namespace annulus
