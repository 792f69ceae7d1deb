#include "engine/runner/choice/list_exchange.h"

namespace annulus {
namespace {

// Which of `blocks` every (kv head, query block) chose, a bit each.
size_t ListBytes(size_t lists, size_t blocks) { return (lists * blocks + 7) / 8; }

}  // namespace

absl::Status ListExchange::Run() {
  const auto give = [&](int peer, std::vector<RingPart>& parts) {
    for (const Choice& item : choices_) {
      const int other = IndexOf(*item.ring, peer);
      if (other < 0 || item.own_rows() == 0 || item.held[other].empty()) continue;
      const std::vector<std::byte>& bits =
          context_.messages.step.emplace_back(Encode(item, item.held[other]));
      parts.push_back({bits.data(), bits.size()});
    }
  };
  const auto expect = [&](int peer, std::vector<size_t>& bytes) {
    for (const Choice& item : choices_) {
      const int other = IndexOf(*item.ring, peer);
      if (other < 0 || item.positions(other).empty() || item.seen[other].empty()) continue;
      const size_t rows = BlocksOf(item.positions(other), item.block).size();
      bytes.push_back(
          ListBytes(static_cast<size_t>(context_.kv_heads()) * rows, item.seen[other].size()));
    }
  };
  const auto take = [&](int peer, const RingParts& parts) {
    size_t next = 0;
    for (const Choice& item : choices_) {
      const int other = IndexOf(*item.ring, peer);
      if (other < 0 || item.positions(other).empty() || item.seen[other].empty()) continue;
      UseLists(item, other, Decode(item, other, parts[next++].data));
    }
    return absl::OkStatus();
  };
  for (const Choice& item : choices_) PlaceOwnLists(item);
  return ChoiceRound(context_, layer_, 4, give, expect, take);
}

std::vector<std::byte> ListExchange::Encode(const Choice& item,
                                            const std::vector<int32_t>& blocks) const {
  std::vector<std::byte> bits(ListBytes(
      static_cast<size_t>(context_.kv_heads()) * item.query_blocks.size(), blocks.size()));
  size_t list = 0;
  for (int kv_head = 0; kv_head < context_.kv_heads(); ++kv_head) {
    for (const int32_t query_block : item.query_blocks) {
      const size_t first = list++ * blocks.size();
      size_t b = 0;
      for (const int32_t key : item.pattern.keys(kv_head, query_block)) {
        while (b < blocks.size() && blocks[b] < key) ++b;
        if (b == blocks.size()) break;
        if (blocks[b] != key) continue;
        bits[(first + b) / 8] |= std::byte{1} << (first + b) % 8;
      }
    }
  }
  return bits;
}

BlockPattern ListExchange::Decode(const Choice& item, int runner, const std::byte* bits) const {
  const std::vector<int32_t> rows = BlocksOf(item.positions(runner), item.block);
  const std::vector<int32_t>& blocks = item.seen[runner];
  return MakePattern(rows, context_.kv_heads(), item.block,
                     [&](size_t q, int kv_head, std::vector<int32_t>& chosen) {
                       const size_t list = static_cast<size_t>(kv_head) * rows.size() + q;
                       for (size_t b = 0; b < blocks.size(); ++b) {
                         const size_t bit = list * blocks.size() + b;
                         if ((bits[bit / 8] >> bit % 8 & std::byte{1}) != std::byte{0}) {
                           chosen.push_back(blocks[b]);
                         }
                       }
                     });
}

void ListExchange::PlaceOwnLists(const Choice& item) const {
  ItemShards& shards = layer_.shards[item.choosing->item];
  const auto degree = static_cast<size_t>(item.ring->degree());
  shards = ItemShards();
  shards.held_by.resize(degree);
  shards.held_lists.resize(degree);
  shards.seen_by.resize(degree);
  shards.seen_lists.resize(degree);
  shards.subtrees = item.choosing->candidates.subtrees;
  if (item.own_rows() == 0) return;
  const std::span<const int32_t> rows = item.positions(item.index());
  for (size_t j = 0; j < degree; ++j) {
    shards.held_by[j] = ChosenPages(item.pattern, rows, item.choosing->candidates.held_by[j]);
    shards.held_lists[j] = MakePageLists(item.pattern, rows, shards.held_by[j]);
  }
}

void ListExchange::UseLists(const Choice& item, int runner, const BlockPattern& pattern) const {
  ItemShards& shards = layer_.shards[item.choosing->item];
  const std::span<const int32_t> rows = item.positions(runner);
  shards.seen_by[runner] = ChosenPages(pattern, rows, item.choosing->candidates.seen_by[runner]);
  shards.seen_lists[runner] = MakePageLists(pattern, rows, shards.seen_by[runner]);
}

}  // namespace annulus
