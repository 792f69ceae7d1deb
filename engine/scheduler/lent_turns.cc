#include "engine/scheduler/lent_turns.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

namespace annulus {
namespace {

constexpr double kLeastDebt = 1e-6;  // seconds; below it is rounding

}  // namespace

// Those that take turns now, as they would be if none had been lent.
std::vector<Contender> LentTurns::Turns(std::span<const Contender> contenders) const {
  std::vector<Contender> turns;
  std::set<SequenceId> going;
  for (const Contender& one : contenders) {
    going.insert(one.id);
    if (IsDue(one)) continue;
    turns.push_back(one);
    turns.back().remaining = std::min(one.remaining - LentBy(one.id), one.total);
  }
  for (const auto& [id, account] : accounts_) {
    if (account.lent >= 0 || going.contains(id)) continue;
    Contender& pays = turns.emplace_back(account.prompt);
    pays.remaining = -account.lent;
    pays.total = std::max(pays.total, pays.remaining);
    pays.until_deadline = Contender().until_deadline;
  }
  return turns;
}

// Null: nobody who has a reason to.
const Contender* LentTurns::GoesOn(std::span<const Contender> contenders) const {
  const auto rank = [this](const Contender& one) {
    return std::pair(IsDue(one) ? 0 : one.begun() ? 1 : 2, one.remaining);
  };
  const auto first =
      std::min_element(contenders.begin(), contenders.end(),
                       [&](const Contender& a, const Contender& b) { return rank(a) < rank(b); });
  return rank(*first).first < 2 ? &*first : nullptr;
}

LentTurns::Turn LentTurns::Next(std::span<const Contender> contenders,
                                const FairShares& shares) const {
  const auto first = [&](std::span<const Contender> of) -> const Contender& {
    return of[ServingOrder(of, shares).front()];
  };
  const auto find = [&](SequenceId id) {
    return std::find_if(contenders.begin(), contenders.end(),
                        [id](const Contender& one) { return one.id == id; });
  };
  const std::vector<Contender> turns = Turns(contenders);
  const Contender lender = first(turns.empty() ? contenders : turns);
  auto next = find(lender.id);
  if (next == contenders.end()) {  // it pays
    std::vector<Contender> owed;
    for (const Contender& one : contenders) {
      if (LentBy(one.id) > 0) owed.push_back(one);
    }
    next = find(first(owed.empty() ? contenders : owed).id);
  }
  const Contender* const other = GoesOn(contenders);
  const bool lends = other != nullptr && other->id != next->id && Lends(*next, *other);
  return {lends ? *other : *next, lender};
}

bool LentTurns::Lends(const Contender& own, const Contender& other) const {
  if (IsDue(own) || own.total <= other.total / 2) return false;
  if (IsDue(other)) return true;
  return own.priority <= other.priority && Urgency(own) < kStepOfPriority * Urgency(other);
}

bool LentTurns::IsDue(const Contender& one) const {
  const double lent = LentBy(one.id);
  return lent > 0 && lent >= one.remaining;
}

double LentTurns::LentBy(SequenceId id) const {
  const auto found = accounts_.find(id);
  return found != accounts_.end() ? found->second.lent : 0;
}

void LentTurns::Charge(const Turn& turn, double seconds) {
  for (auto& [id, account] : accounts_) account.prompt.elapsed += seconds;
  if (turn.served.id == turn.lender.id) return;
  accounts_.try_emplace(turn.lender.id, Account{turn.lender}).first->second.lent += seconds;
  Account& served = accounts_[turn.served.id];
  served.prompt = turn.served;
  served.lent -= seconds;
}

void LentTurns::Keep(const std::function<bool(SequenceId)>& left) {
  std::erase_if(accounts_, [&](const auto& entry) {
    const double lent = entry.second.lent;
    return std::abs(lent) < kLeastDebt || (lent > 0 && !left(entry.first));
  });
  const auto owed = std::count_if(accounts_.begin(), accounts_.end(),
                                  [](const auto& entry) { return entry.second.lent > 0; });
  if (owed == 0 || owed == std::ssize(accounts_)) accounts_.clear();
}

std::vector<ShareName> LentTurns::Owing() const {
  std::vector<ShareName> shares;
  for (const auto& [id, account] : accounts_) {
    if (account.lent < 0) shares.push_back(account.prompt.share);
  }
  return shares;
}

}  // namespace annulus
