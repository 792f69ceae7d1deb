#ifndef ANNULUS_ENGINE_SCHEDULER_LENT_TURNS_H_
#define ANNULUS_ENGINE_SCHEDULER_LENT_TURNS_H_

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "engine/scheduler/order.h"

namespace annulus {

// Lets prompts be read one after the other, although their shares take turns. The turns are those
// of ServingOrder: they say who begins. A prompt that was begun goes on: of all that were begun,
// the one with least left is also read in the turns of others. So equal prompts are not all read
// only at the end. A prompt keeps its own turn if it is shorter by half than that one, of higher
// priority, or more urgent by as much as a step of priority.
//
// A turn that is lent counts for the one whose turn it was. A prompt that was read in turns of
// others keeps its place after its end, and pays back: its turns go to those that have lent. One
// that has lent as much as it still needs would have been read by now: it takes no more turns, and
// goes on before those that were begun, in the turns of all that would lend. So turns pass as if
// none were lent, and say when each prompt is due: this is the order of Friedman and Henderson
// ("Fairness and efficiency in web server protocols", SIGMETRICS 2003), in which nobody takes
// longer than by turns, but for those that go on although a somewhat shorter one has come. In
// thousands of random traces nobody takes more than twice its time under turns alone. Plain data.
class LentTurns {
 public:
  struct Turn {
    Contender served;
    Contender lender;  // whose turn it is: the same, or it lends its turn, or pays back
  };

  // Whom to read next, and in whose turn; both as they are now. `contenders`: prompts that could go
  // on, at least one.
  Turn Next(std::span<const Contender> contenders, const FairShares& shares) const;
  // `turn.served` was read for so many seconds.
  void Charge(const Turn& turn, double seconds);
  // Forgets what those have lent of whose prompts nothing is `left` to read, and all debts if
  // nobody owes or is owed any more.
  void Keep(const std::function<bool(SequenceId)>& left);
  // The shares of those that owe: they take turns, also after their ends.
  std::vector<ShareName> Owing() const;

 private:
  struct Account {
    Contender prompt;  // when it last lent or was read
    double lent = 0;   // seconds; negative: it owes
  };

  double LentBy(SequenceId id) const;
  // Whether it would have been read by now, if nobody had lent turns.
  bool IsDue(const Contender& one) const;
  bool Lends(const Contender& own, const Contender& other) const;
  std::vector<Contender> Turns(std::span<const Contender> contenders) const;
  const Contender* GoesOn(std::span<const Contender> contenders) const;

  std::map<SequenceId, Account> accounts_;  // of those that have lent or owe
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_LENT_TURNS_H_
