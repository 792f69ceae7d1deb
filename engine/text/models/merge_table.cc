#include "engine/text/models/merge_table.h"

#include <algorithm>
#include <functional>

#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr uint32_t kEnd = UINT32_MAX;
constexpr int32_t kGone = -1;  // merged into the symbol on its left

}  // namespace

void MergeTable::Enqueue(uint32_t position, Workspace* workspace) const {
  const auto& symbol = workspace->symbols[position];
  if (symbol.next == kEnd) return;
  const Rule* rule = Find(symbol.id, workspace->symbols[symbol.next].id);
  if (rule == nullptr) return;
  workspace->queue.push_back(uint64_t{rule->rank} << 32 | position);
  std::push_heap(workspace->queue.begin(), workspace->queue.end(), std::greater<>());
}

absl::Status MergeTable::Apply(const std::vector<int32_t>& ids, WorkMeter* work,
                               Workspace* workspace, std::vector<int32_t>* result) const {
  ANNULUS_RETURN_IF_ERROR(work->Step(StepsFor(ids.size())));
  auto& symbols = workspace->symbols;
  auto& queue = workspace->queue;
  const auto count = static_cast<uint32_t>(ids.size());
  symbols.resize(count);
  queue.clear();
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i] = {ids[i], i == 0 ? kEnd : i - 1, i + 1 == count ? kEnd : i + 1};
    if (i + 1 == count) break;
    const Rule* rule = Find(ids[i], ids[i + 1]);
    if (rule != nullptr) queue.push_back(uint64_t{rule->rank} << 32 | i);
  }
  std::make_heap(queue.begin(), queue.end(), std::greater<>());

  while (!queue.empty()) {
    ANNULUS_RETURN_IF_ERROR(work->Step());
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t entry = queue.back();
    queue.pop_back();
    const auto position = static_cast<uint32_t>(entry);
    auto& left = symbols[position];
    if (left.id == kGone || left.next == kEnd) continue;
    auto& right = symbols[left.next];
    const Rule* rule = Find(left.id, right.id);
    if (rule == nullptr || rule->rank != entry >> 32) continue;  // the pair has changed since
    left.id = rule->result;
    left.next = right.next;
    right.id = kGone;
    if (left.next != kEnd) symbols[left.next].previous = position;
    if (left.previous != kEnd) Enqueue(left.previous, workspace);
    Enqueue(position, workspace);
  }
  for (uint32_t i = 0; i != kEnd && count > 0; i = symbols[i].next) {
    result->push_back(symbols[i].id);
  }
  return absl::OkStatus();
}

}  // namespace annulus
