#include "engine/scheduler/order.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

namespace annulus {
namespace {

// Below this, differences of a prediction mean nothing: without it the shortest of all would always
// come first.
constexpr double kShortest = 0.02;  // seconds
constexpr double kMostUrgent = 1e9;
constexpr double kStepOfPriority = 4;
constexpr double kBegun = 1.25;

// Accounts of one level: present ones that had none before start at the least of those that had,
// and absent ones go once that is more than theirs.
template <typename Map, typename Get>
void Level(Map& map, const std::set<std::string>& present, const Get& account) {
  double least = std::numeric_limits<double>::infinity();
  for (auto& [name, entry] : map) {
    auto& one = account(entry);
    one.present = present.contains(name);
    if (one.present) least = std::min(least, one.had);
  }
  if (std::isinf(least)) {
    least = 0;
    for (auto& [name, entry] : map) least = std::max(least, account(entry).had);
  }
  for (const std::string& name : present) {
    auto& one = account(map[name]);
    if (!one.present) one.had = std::max(one.had, least);
    one.present = true;
  }
  for (auto item = map.begin(); item != map.end();) {
    const auto& one = account(item->second);
    item = !one.present && one.had <= least ? map.erase(item) : std::next(item);
  }
}

}  // namespace

double Urgency(const Contender& contender) {
  const double total = std::max(contender.total, kShortest);
  const double remaining = std::clamp(contender.remaining, kShortest, total);
  double urgency = (contender.elapsed + remaining) / std::sqrt(total * remaining);
  if (contender.remaining < contender.total) urgency *= kBegun;
  const double slack = contender.until_deadline - contender.remaining;
  if (slack > 0 && std::isfinite(slack)) {
    urgency = std::max(urgency, contender.until_deadline / slack);
  }
  return std::min(urgency, kMostUrgent) * std::pow(kStepOfPriority, contender.priority);
}

void FairShares::SetPresent(std::span<const ShareName> present) {
  std::set<std::string> tenants;
  std::map<std::string, std::set<std::string>> clients;
  for (const ShareName& share : present) {
    tenants.insert(share.tenant);
    clients[share.tenant].insert(share.client);
  }
  Level(tenants_, tenants, [](Tenant& tenant) -> Account& { return tenant.account; });
  for (auto& [name, tenant] : tenants_) {
    Level(tenant.clients, clients[name], [](Account& account) -> Account& { return account; });
  }
}

void FairShares::Charge(const ShareName& share, double seconds) {
  const auto tenant = tenants_.find(share.tenant);
  if (tenant == tenants_.end()) return;
  tenant->second.account.had += seconds;
  const auto client = tenant->second.clients.find(share.client);
  if (client != tenant->second.clients.end()) client->second.had += seconds;
}

double FairShares::had(const std::string& tenant) const {
  const auto found = tenants_.find(tenant);
  return found == tenants_.end() ? 0 : found->second.account.had;
}

double FairShares::had(const ShareName& share) const {
  const auto tenant = tenants_.find(share.tenant);
  if (tenant == tenants_.end()) return 0;
  const auto client = tenant->second.clients.find(share.client);
  return client == tenant->second.clients.end() ? 0 : client->second.had;
}

std::vector<size_t> ServingOrder(std::span<const Contender> contenders, const FairShares& shares) {
  using Turn = std::pair<double, std::string>;  // had, name: whoever is first is next
  struct Lane {
    std::vector<size_t> requests;  // the most pressing last
  };
  struct Tenant {
    std::map<std::string, Lane> lanes;
    std::set<Turn> turns;
  };
  std::vector<double> urgency(contenders.size());
  std::map<std::string, Tenant> tenants;
  for (size_t i = 0; i < contenders.size(); ++i) {
    urgency[i] = Urgency(contenders[i]);
    const ShareName& share = contenders[i].share;
    tenants[share.tenant].lanes[share.client].requests.push_back(i);
  }
  std::set<Turn> turns;
  for (auto& [name, tenant] : tenants) {
    turns.emplace(shares.had(name), name);
    for (auto& [client, lane] : tenant.lanes) {
      tenant.turns.emplace(shares.had(ShareName{name, client}), client);
      std::sort(lane.requests.begin(), lane.requests.end(), [&](size_t a, size_t b) {
        if (urgency[a] != urgency[b]) return urgency[a] < urgency[b];
        return contenders[a].id > contenders[b].id;
      });
    }
  }
  std::vector<size_t> order;
  while (!turns.empty()) {
    const auto [had, name] = *turns.begin();
    turns.erase(turns.begin());
    Tenant& tenant = tenants[name];
    const auto [client_had, client] = *tenant.turns.begin();
    tenant.turns.erase(tenant.turns.begin());
    Lane& lane = tenant.lanes[client];
    const size_t next = lane.requests.back();
    lane.requests.pop_back();
    order.push_back(next);
    const double work = std::max(contenders[next].remaining, kShortest);
    if (!lane.requests.empty()) tenant.turns.emplace(client_had + work, client);
    if (!tenant.turns.empty()) turns.emplace(had + work, name);
  }
  return order;
}

}  // namespace annulus
