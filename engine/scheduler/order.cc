#include "engine/scheduler/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "engine/base/tenant_id.h"

namespace annulus {
namespace {

// Below this, differences of a prediction mean nothing: without it the shortest of all would always
// come first.
constexpr double kShortest = 0.02;  // seconds
constexpr double kMostUrgent = 1e9;
constexpr double kBegun = 1.25;
constexpr double kNearlyDone = 2;
constexpr double kLost = 1e-12;
// Margin of a deadline over the prediction. An answer's length and the streams that will run beside
// it are guesses. A prompt that is predicted too short is given up when most of it is computed.
constexpr double kPromptMargin = 1.1;
constexpr double kAnswerMargin = 1.25;

// How much a second of work counts for the share's account at a level.
double WeightOf(const ShareName& share, size_t level, int priority) {
  return level > share.owner_level() ? std::pow(kStepOfPriority, -priority) : 1;
}

// Requests that wait at one level of shares, by the next level's names; at the last, the requests.
struct Lane {
  using Turn = std::pair<double, std::string>;  // had, name: whoever is first is next
  std::map<std::string, Lane> lanes;
  std::set<Turn> turns;
  std::vector<size_t> requests;  // the most pressing last

  bool empty() const { return turns.empty() && requests.empty(); }

  // Takes the next request out, and counts it as served. `level` is that of the lanes' names.
  size_t Take(std::span<const Contender> contenders, size_t level) {
    if (lanes.empty()) {
      const size_t next = requests.back();
      requests.pop_back();
      return next;
    }
    const auto [had, name] = turns.extract(turns.begin()).value();
    Lane& lane = lanes[name];
    const size_t next = lane.Take(contenders, level + 1);
    const Contender& served = contenders[next];
    const double work = std::max(served.remaining, kShortest);
    if (!lane.empty()) {
      turns.emplace(had + work * WeightOf(served.share, level, served.priority), name);
    }
    return next;
  }
};

}  // namespace

size_t ShareName::owner_level() const { return tenant != TenantId().name() ? 0 : 1; }

std::string ShareName::owner() const {
  if (owner_level() == 0) return "tenant " + tenant;
  return client.empty() ? std::string() : "client " + client;
}

double SecondsNeeded(const Contender& contender, double ahead) {
  return kPromptMargin * contender.slowed * (ahead + contender.remaining) +
         kAnswerMargin * contender.answer;
}

double SecondsToReach(double urgency, const Contender& contender) {
  return urgency / std::pow(kStepOfPriority, contender.priority) *
         std::max(contender.total, kShortest);
}

double Urgency(const Contender& contender) {
  const double total = std::max(contender.total, kShortest);
  const double remaining = std::clamp(contender.remaining, kShortest, total);
  double urgency =
      (contender.elapsed + remaining) / total * std::min(std::sqrt(total / remaining), kNearlyDone);
  if (contender.begun()) urgency *= kBegun;
  const double slack = contender.until_deadline - SecondsNeeded(contender);
  if (slack > 0 && std::isfinite(slack)) {
    urgency = std::max(urgency, contender.until_deadline / slack);
  } else if (slack <= 0 && contender.ends_at_deadline) {
    urgency *= kLost;
  }
  return std::min(urgency, kMostUrgent) * std::pow(kStepOfPriority, contender.priority);
}

// `contending` is sorted, and all of it lies below `account`.
void FairShares::SetContending(Account& account, std::span<const ShareName> contending,
                               size_t level) {
  if (level == ShareName::kLevels) return;
  for (auto& [name, one] : account.below) {
    if (contending.empty()) account.time = std::max(account.time, one.had);
    one.contended = std::exchange(one.contends, false);
  }
  for (size_t begin = 0; begin < contending.size();) {
    const std::string& name = contending[begin].level(level);
    size_t end = begin;
    while (end < contending.size() && contending[end].level(level) == name) ++end;
    Account& one = account.below[name];
    if (!one.contended) one.had = std::max(one.had, account.time);
    one.contends = true;
    SetContending(one, contending.subspan(begin, end - begin), level + 1);
    begin = end;
  }
  std::erase_if(account.below, [&](const auto& entry) {
    return !entry.second.contends && entry.second.had <= account.time;
  });
  for (auto& [name, one] : account.below) {
    if (!one.contends) SetContending(one, {}, level + 1);
  }
}

void FairShares::SetContending(std::span<const ShareName> contending) {
  std::vector<ShareName> sorted(contending.begin(), contending.end());
  std::sort(sorted.begin(), sorted.end());
  SetContending(all_, sorted, 0);
}

// Of those whose prompts were served, the one that has had least says how late it is.
void FairShares::Advance(Account& account, std::span<const ShareUse> step, size_t level) {
  double least = std::numeric_limits<double>::infinity();
  for (const ShareUse& use : step) {
    if (use.prompt) least = std::min(least, account.below[use.share.level(level)].had);
  }
  if (std::isfinite(least)) account.time = std::max(account.time, least);
}

void FairShares::Charge(std::span<const ShareUse> step) {
  std::map<Account*, std::pair<size_t, std::vector<ShareUse>>> touched;  // level, uses
  for (const ShareUse& use : step) {
    Account* account = &all_;
    for (size_t level = 0; level < ShareName::kLevels; ++level) {
      auto& [at, uses] = touched[account];
      at = level;
      uses.push_back(use);
      Account& one =
          account->below.try_emplace(use.share.level(level), Account{account->time}).first->second;
      one.had += use.seconds * WeightOf(use.share, level, use.priority);
      account = &one;
    }
  }
  for (const auto& [account, uses] : touched) Advance(*account, uses.second, uses.first);
}

double FairShares::had(const ShareName& share, size_t levels) const {
  const Account* account = &all_;
  for (size_t level = 0; level < levels; ++level) {
    const auto found = account->below.find(share.level(level));
    if (found == account->below.end()) return level + 1 == levels ? account->time : 0;
    account = &found->second;
  }
  return account->had;
}

std::vector<size_t> ServingOrder(std::span<const Contender> contenders, const FairShares& shares) {
  std::vector<double> urgency(contenders.size());
  for (size_t i = 0; i < contenders.size(); ++i) urgency[i] = Urgency(contenders[i]);
  std::vector<size_t> pressing(contenders.size());
  std::iota(pressing.begin(), pressing.end(), size_t{0});
  std::sort(pressing.begin(), pressing.end(), [&](size_t a, size_t b) {
    if (urgency[a] != urgency[b]) return urgency[a] < urgency[b];
    return contenders[a].id > contenders[b].id;
  });
  Lane all;
  for (const size_t i : pressing) {
    const ShareName& share = contenders[i].share;
    Lane* lane = &all;
    for (size_t level = 0; level < ShareName::kLevels; ++level) {
      const std::string& name = share.level(level);
      const auto [found, is_new] = lane->lanes.try_emplace(name);
      if (is_new) lane->turns.emplace(shares.had(share, level + 1), name);
      lane = &found->second;
    }
    lane->requests.push_back(i);
  }
  std::vector<size_t> order;
  while (!all.empty()) order.push_back(all.Take(contenders, 0));
  return order;
}

}  // namespace annulus
