#include "kernels/cuda/kept_attention.h"

#include <type_traits>
#include <utility>

namespace annulus::cuda {
namespace {

// Appends values to a key, bit for bit.
class KeyWriter {
 public:
  explicit KeyWriter(std::string& key) : key_(key) { key_.clear(); }

  template <class T>
  void Add(const T& value) {
    AddBytes(std::span(&value, 1));
  }
  template <class T>
  void AddAll(std::span<const T> values) {
    Add(values.size());
    AddBytes(values);
  }

 private:
  template <class T>
  void AddBytes(std::span<const T> values) {
    static_assert(std::has_unique_object_representations_v<T>);
    key_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }

  std::string& key_;
};

// All that plans and uploaded arrays depend on; multiprocessors are the stream's.
void WriteKey(const AttentionParams& params, const PrefillPath& path, bool invariant,
              std::string& key) {
  KeyWriter writer(key);
  writer.Add(invariant);
  writer.Add(path.hopper);
  writer.Add(path.rows);
  writer.Add(path.section_bytes);
  writer.Add(path.pairs);
  writer.Add(params.shape.page_tokens);
  writer.Add(params.shape.kv_heads);
  writer.Add(params.shape.k_dim);
  writer.Add(params.shape.v_dim);
  writer.Add(params.shape.dtype);
  writer.Add(params.heads);
  writer.Add(params.window);
  writer.Add(params.shards);
  writer.Add(params.items.size());
  for (const AttentionItem& item : params.items) {
    writer.Add(item.merges);
    writer.Add(item.first_leaf);
    writer.Add(item.leaves);
    writer.AddAll(item.positions);
    writer.AddAll(item.branches);
    writer.Add(item.blocks.full);
    if (!item.blocks.full) {
      writer.Add(item.blocks.head_groups);
      writer.AddAll(item.blocks.query_block_rows);
      writer.AddAll(item.blocks.offsets);
      writer.AddAll(item.blocks.pages);
    }
    // After the lists, because these may differ in each layer while the pages, which take the most
    // bytes, are the same: a comparison ends at the first difference.
    writer.AddAll(item.pages);
  }
}

}  // namespace

void KeptAttention::StartTurn(uint64_t turn) {
  if (turn == turn_) return;
  turn_ = turn;
  entries_.clear();
  oldest_ = 0;
}

PlacedAttention* KeptAttention::Find(const AttentionParams& params, const PrefillPath& path,
                                     bool invariant, uint64_t turn) {
  StartTurn(turn);
  WriteKey(params, path, invariant, asked_);
  for (Entry& entry : entries_) {
    if (entry.key == asked_) return &entry.placed;
  }
  return nullptr;
}

void KeptAttention::Keep(PlacedAttention placed, uint64_t turn) {
  StartTurn(turn);
  Entry entry{std::move(asked_), std::move(placed)};
  if (entries_.size() < kMost) {
    entries_.push_back(std::move(entry));
    return;
  }
  entries_[oldest_] = std::move(entry);
  oldest_ = (oldest_ + 1) % kMost;
}

}  // namespace annulus::cuda
