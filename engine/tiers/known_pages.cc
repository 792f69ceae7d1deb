#include "engine/tiers/known_pages.h"

#include <limits>
#include <tuple>
#include <utility>

#include "absl/cleanup/cleanup.h"

namespace annulus {
namespace {

constexpr int64_t kBlock = 4096;  // a file takes whole blocks of the disk

}  // namespace

bool KnownPages::Order::operator<(const Order& other) const {
  return std::tie(key.rank, use, other.first_position, key.chain, key.group) <
         std::tie(other.key.rank, other.use, first_position, other.key.chain, other.key.group);
}

int64_t KnownPages::FileBytes(uint64_t payload_bytes) {
  const auto bytes = static_cast<int64_t>(kEntryHeaderBytes + payload_bytes);
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

KnownPages::Order KnownPages::OrderOf(const Page& page) {
  return {page.use, page.name.first_position, page.name.key};
}

const KnownPages::Page* KnownPages::Find(const PageKey& key) const {
  const auto found = pages_.find(key);
  return found == pages_.end() ? nullptr : &found->second;
}

void KnownPages::Add(const EntryName& name, int64_t use) {
  const Page page{name, use, 0};
  std::set<Order>& order = tenants_[name.tenant].order;
  const auto [place, is_new] = order.insert(OrderOf(page));
  absl::Cleanup undo = [&, at = place] { order.erase(at); };  // if the next insertion throws
  pages_.emplace(name.key, page);
  std::move(undo).Cancel();
}

void KnownPages::Touch(const PageKey& key, int64_t use) {
  const auto found = pages_.find(key);
  if (found == pages_.end() || found->second.use >= use) return;
  std::set<Order>& order = tenants_.at(found->second.name.tenant).order;
  auto place = order.extract(OrderOf(found->second));
  found->second.use = use;
  place.value() = OrderOf(found->second);
  order.insert(std::move(place));
}

bool KnownPages::Hold(const PageKey& key) {
  const auto found = pages_.find(key);
  if (found == pages_.end()) return false;
  ++found->second.holds;
  return true;
}

void KnownPages::Release(const PageKey& key) {
  const auto found = pages_.find(key);
  // The page may have been dropped since Hold, and added again.
  if (found != pages_.end() && found->second.holds > 0) --found->second.holds;
}

void KnownPages::SetDocuments(const PageKey& key, const DocumentSet& documents) {
  pages_.at(key).name.documents = documents;
}

std::optional<EntryName> KnownPages::Drop(const PageKey& key) {
  const auto found = pages_.find(key);
  if (found == pages_.end()) return std::nullopt;
  const EntryName name = found->second.name;
  Count(name.tenant, -FileBytes(name.payload_bytes), key.rank);
  tenants_.at(name.tenant).order.erase(OrderOf(found->second));
  pages_.erase(found);
  return name;
}

std::vector<EntryName> KnownPages::DropBeside(int32_t rank) {
  std::vector<EntryName> names;
  for (const auto& [key, page] : pages_) {
    if (key.rank == rank) names.push_back(page.name);
  }
  for (const EntryName& name : names) Drop(name.key);
  return names;
}

void KnownPages::Count(uint64_t tenant, int64_t bytes, int32_t rank) {
  int64_t& of_tenant = tenants_[tenant].bytes[rank];
  bytes_beside_[rank] += bytes;
  of_tenant += bytes;
  bytes_ += bytes;
}

int64_t KnownPages::bytes_of(uint64_t tenant, int32_t rank) const {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return 0;
  const auto beside = found->second.bytes.find(rank);
  return beside == found->second.bytes.end() ? 0 : beside->second;
}

std::optional<std::vector<PageKey>> KnownPages::Choose(const Wanted& wanted) const {
  using Next = std::set<Order>::const_iterator;
  struct Queue {
    Next next;
    Next end;
  };
  std::map<uint64_t, Queue> queues;
  // Before all pages beside the rank.
  const auto begin_of = [](int32_t rank) {
    return Order{
        std::numeric_limits<int64_t>::min(), std::numeric_limits<int32_t>::max(), {.rank = rank}};
  };
  for (const auto& [tenant, own] : tenants_) {
    const Queue queue{own.order.lower_bound(begin_of(wanted.rank)),
                      own.order.lower_bound(begin_of(wanted.rank + 1))};
    if (queue.next != queue.end) queues[tenant] = queue;
  }
  std::vector<PageKey> oldest;
  const auto beside = bytes_beside_.find(wanted.rank);
  int64_t after = (beside == bytes_beside_.end() ? 0 : beside->second) + wanted.bytes;
  int64_t after_of_tenant = bytes_of(wanted.tenant, wanted.rank) + wanted.bytes;
  const auto skip_held = [&](Queue& queue) {
    while (queue.next != queue.end && pages_.at(queue.next->key).holds > 0) ++queue.next;
  };
  // Takes the first page of the queue, unless its use is too recent.
  const auto take = [&](uint64_t tenant, Queue& queue) {
    skip_held(queue);
    if (queue.next == queue.end || queue.next->use >= wanted.use) return false;
    const int64_t bytes = FileBytes(pages_.at(queue.next->key).name.payload_bytes);
    after -= bytes;
    if (tenant == wanted.tenant) after_of_tenant -= bytes;
    oldest.push_back(queue.next++->key);
    return true;
  };
  while (after_of_tenant > wanted.most_of_tenant) {
    const auto own = queues.find(wanted.tenant);
    if (own == queues.end() || !take(own->first, own->second)) return std::nullopt;
  }
  while (after > wanted.most) {
    auto first = queues.end();
    for (auto each = queues.begin(); each != queues.end(); ++each) {
      skip_held(each->second);
      if (each->second.next == each->second.end) continue;
      if (first == queues.end() || *each->second.next < *first->second.next) first = each;
    }
    if (first == queues.end() || !take(first->first, first->second)) return std::nullopt;
  }
  return oldest;
}

std::optional<std::vector<EntryName>> KnownPages::MakeRoom(const Wanted& wanted) {
  const std::optional<std::vector<PageKey>> oldest = Choose(wanted);
  if (!oldest.has_value()) return std::nullopt;
  // Everything that allocates comes before the first page is given up.
  std::vector<EntryName> names;
  for (const PageKey& key : *oldest) names.push_back(pages_.at(key).name);
  for (const PageKey& key : *oldest) Drop(key);
  return names;
}

}  // namespace annulus
