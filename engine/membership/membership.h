#ifndef ANNULUS_ENGINE_MEMBERSHIP_MEMBERSHIP_H_
#define ANNULUS_ENGINE_MEMBERSHIP_MEMBERSHIP_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/steady_time.h"

namespace annulus {

// Who dialled, in the order in which they did: 1, 2, .. 0: nobody.
using MemberId = int64_t;

// What a worker said that it may not.
absl::Status WrongMessage(absl::string_view what);

struct MembershipOptions {
  int first_rank = 0;  // of those at workers
  int ranks = 1;       // of the whole ring
  // A worker that has said nothing for this long is lost.
  std::chrono::milliseconds silence{0};
  // So is one whose step has made no progress for this long, unless it waits for other ranks.
  std::chrono::milliseconds step_silence{0};
  // So is one whose step has not ended after this long, whatever progress it says it makes; after
  // twice this long, if it says that it waits for other ranks.
  std::chrono::milliseconds step_limit{0};
  // Longest wait for the first message of whoever dials.
  std::chrono::milliseconds hello_timeout{0};
  // Longest wait for a worker to open its wires, or to take its memory.
  std::chrono::milliseconds forming_timeout{0};
  // How long a ring that has served waits for a host of a vacant seat before it goes on without.
  std::chrono::milliseconds replacement_timeout{0};
};

// Who belongs to a ring over processes, who waits to, and which epoch the ring is in: what its
// coordinator alone decides, as a function of what it was told. Knows no clock, no thread and no
// link: whoever has them tells what happened and when, and does what is decided.
//
// The ranks at workers lie in seats. Once all ranks have a worker the seats are cut, one for each
// worker in the order of names, and stay as they are: a rank is logical, and only its host changes.
// A worker that comes later is a spare. Whoever leaves makes its seat vacant, and its ranks have
// lost what they held; the spare that has waited longest among those with as many ranks takes the
// seat. If none comes in time, a ring that was founded goes on without its ranks: the seat is left
// out until a spare takes it, and its ranks count as lost again whenever they are left out or come
// back.
//
// Epochs are 1, 2, .. An epoch begins (Form) when every seat that is not left out has a host whose
// wires for it are open, and ends (Abort) by whatever failed in it. Steps are 1, 2, .. in each
// epoch. What bears an earlier epoch is late, and is dropped; a host that sends what no host can
// send is at fault.
//
// Times never decrease. Not thread-safe.
class Membership {
 public:
  enum class Role : uint8_t {
    kStranger,  // has not said Hello
    kSpare,     // belongs to no seat; before the seats are cut: will
    kHost,
    kGone,  // or unknown
  };
  struct Seat {
    int first_rank = 0;
    int ranks = 0;
    MemberId host = 0;  // 0: vacant
    // The epoch that began last is without its ranks.
    bool left_out = false;
  };
  // What the ranks of a worker do, as it says.
  struct Work {
    uint64_t advances = 0;  // how often they have made progress so far
    int running = 0;        // how many are in a step
    int waiting = 0;        // of these, how many wait for other ranks
  };

  explicit Membership(const MembershipOptions& options) : options_(options) {}

  // ---- what happened

  MemberId Dial(SteadyTime now);
  // It has said anything.
  void Hear(MemberId id, SteadyTime now);
  // ALREADY_EXISTS: the name is another's, who is not gone; FAILED_PRECONDITION: nobody needs a
  // worker with so many ranks; else INVALID_ARGUMENT.
  absl::Status Hello(MemberId id, const std::string& name, int ranks);
  // Of what only those say who have said Hello.
  absl::Status Beat(MemberId id) const;
  // What its ranks do now. Returns whether they have made progress since it last said so.
  absl::StatusOr<bool> Advance(MemberId id, const Work& work, SteadyTime now);
  // Its wires for `epoch` are open. False: that is late.
  absl::StatusOr<bool> Wires(MemberId id, uint64_t epoch);
  // Its ranks have their memory.
  absl::Status Ready(MemberId id);
  // A step has ended on it. False: that is late.
  absl::StatusOr<bool> Result(MemberId id, uint64_t epoch, uint64_t step, SteadyTime now);
  // It is gone, whatever the reason, and said nothing that counts any more.
  void Leave(MemberId id, SteadyTime now);

  // ---- what follows

  struct Late {
    MemberId id = 0;
    absl::Status why;  // "it has said nothing for 2000 ms"
  };
  // Those who have not said in time what they had to: they must leave.
  std::vector<Late> FindLate(SteadyTime now) const;
  // When FindLate may find somebody, if nothing happens before; nothing: never.
  std::optional<SteadyTime> NextLate() const;

  // Cuts the seats if all ranks have a worker, and gives vacant seats to spares. Returns the new
  // hosts: each must be told its seat and next_epoch().
  std::vector<MemberId> Fill(SteadyTime now);
  // Whether the epoch after this one can begin.
  bool CanForm(SteadyTime now) const;
  // Requires CanForm. Leaves vacant seats out. Returns the epoch that begins.
  uint64_t Form(SteadyTime now);
  // The ring serves from now on: its ranks may hold something, and it may go on without some.
  // Requires that it is up, or was founded before.
  void Found();
  // The epoch is over. Returns the hosts that must be told: those who are in it. None if it was
  // over already, or if none ever began.
  std::vector<MemberId> Abort(SteadyTime now);
  // The next step of the epoch begins; returns its number.
  uint64_t BeginStep(SteadyTime now);

  // The ranks that lost what they held, ascending; nothing is up until they were taken. Those of a
  // ring that was not founded held nothing.
  std::vector<int32_t> TakeLost();

  // ---- what is

  uint64_t epoch() const { return epoch_; }  // the last that began; 0: none did
  uint64_t next_epoch() const { return epoch_ + 1; }
  bool aborted() const { return aborted_; }
  // Whether steps may run: the epoch lasts, all hosts are there and ready, and nobody has yet to be
  // told of ranks that were lost.
  bool is_up() const;
  bool is_complete() const { return !seats_.empty(); }  // the seats are cut
  bool is_founded() const { return founded_; }
  // Whether it belongs to the epoch that began last.
  bool IsInEpoch(MemberId id) const;
  bool IsReady(MemberId id) const;
  // Whether a step of the epoch that began last may run on it, even if that epoch is over: it has
  // yet to open wires for the next.
  bool MayRunStep(MemberId id) const;
  Role role(MemberId id) const;
  // When it dialled or last said anything. Requires that it is not gone.
  SteadyTime heard(MemberId id) const { return members_.at(id).heard; }
  const std::vector<Seat>& seats() const { return seats_; }  // by rank; empty until they are cut
  const Seat* SeatOf(MemberId id) const;                     // null: it has none
  const Seat& SeatOfRank(int rank) const;
  std::vector<MemberId> Hosts() const;   // by rank
  std::vector<MemberId> Spares() const;  // the one that waits longest first
  // Since when the ring has lacked a host that serves; nothing: no seat is vacant now but those
  // that are left out.
  std::optional<SteadyTime> vacant_since() const;
  // Whether a ring is left if the vacant seats are left out.
  bool CanShrink() const;
  // Until the seats are cut: how many ranks have no worker.
  int Missing() const;

 private:
  struct Member {
    Role role = Role::kStranger;
    std::string name;
    int ranks = 0;
    SteadyTime heard;     // when it dialled or last said anything
    SteadyTime asked;     // of a host: since when something is awaited of it
    bool ready = false;   // of a host
    uint64_t wires = 0;   // open for which epoch
    uint64_t joined = 0;  // the last epoch that it took part in
    uint64_t ended = 0;   // steps of that epoch
    Work work;            // as it said last
    SteadyTime advanced;  // when its step last made progress, or waited for others
    SteadyTime owing;     // since when its oldest step has been awaited, if one is
  };

  const Member* Find(MemberId id) const;
  Member* Find(MemberId id) { return const_cast<Member*>(std::as_const(*this).Find(id)); }
  absl::StatusOr<Member*> FindHost(MemberId id, const char* what);
  void CutSeats();
  bool IsWhole() const;
  void NoteWhole();
  void LoseRanks(const Seat& seat);
  bool MayLeaveOut(const Seat& seat, SteadyTime now) const;
  bool AwaitsWires(const Member& member) const;
  bool AwaitsMemory(const Member& member) const;
  bool OwesStep(const Member& member) const;
  SteadyTime ProgressDue(const Member& member) const;
  SteadyTime EndDue(const Member& member) const;
  SteadyTime DeadlineOf(const Member& member) const;
  absl::Status WhyLate(const Member& member, SteadyTime now) const;

  const MembershipOptions options_;
  MemberId last_ = 0;
  std::map<MemberId, Member> members_;  // without those who are gone
  std::vector<Seat> seats_;
  uint64_t epoch_ = 0;
  bool founded_ = false;
  bool aborted_ = true;  // no epoch has begun
  uint64_t steps_ = 0;
  std::vector<bool> lost_;                 // [rank] and not taken
  std::optional<SteadyTime> lacks_since_;  // when a seat became vacant, until the ring serves
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMBERSHIP_MEMBERSHIP_H_
