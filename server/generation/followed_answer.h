#ifndef ANNULUS_SERVER_GENERATION_FOLLOWED_ANSWER_H_
#define ANNULUS_SERVER_GENERATION_FOLLOWED_ANSWER_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/api.h"
#include "server/base/memory_budget.h"
#include "server/generation/bounded_sink.h"

namespace annulus::server {

// The events of one request (of queue positions and progress only the newest) and the calls that
// follow it, each with its own sink. Every call gets the events from the first one on. Its sink
// holds no more of them than its limits allow, and gets more as its reader takes them.
//
// Events are kept for calls that come later, until StopKeeping. From then on those that every call
// has taken are freed, and while one call keeps up, those that are behind are ended with
// SLOW_READER: they would hold it up, or need memory beyond the limit. A call alone stands still.
//
// Not thread-safe.
class FollowedAnswer {
 public:
  // `request_id` is for errors. `own_bytes` of memory are taken besides the events. `tenant` counts
  // the same bytes as `memory`, and has no limit.
  FollowedAnswer(std::string request_id, size_t own_bytes, std::shared_ptr<MemoryBudget> memory,
                 std::shared_ptr<MemoryBudget> tenant);

  // Gives the sink what has come so far. Not after StopKeeping, unless the request has failed.
  void Attach(const std::shared_ptr<BoundedSink>& sink);
  // The reader of the sink has taken an event.
  void Refill(const BoundedSink& sink);
  // The sink gets no more. False if it did not follow.
  bool Remove(const BoundedSink& sink);
  size_t followers() const { return followers_.size(); }
  // Whether a call is behind the last delta.
  bool IsBeingRead() const;

  void SetQueued(int position);
  void SetProgress(const PromptProgress& progress);
  // A delta, and the end; before the end, any number of deltas. After each of them call Feed, once
  // there is memory for it. A failure drops the deltas: calls get it alone.
  void Add(Delta delta);
  void End(Completion completion);
  // Hands the calls what they have room for.
  void Feed();
  const std::optional<Completion>& completion() const { return completion_; }
  bool failed() const { return completion_.has_value() && !completion_->status.ok(); }

  bool kept() const { return kept_; }
  void StopKeeping();
  // Ends every call that is behind, with SLOW_READER.
  void EndBehind();

  // What the events and `own_bytes` take, and what of it is held of `memory`. While events are
  // kept, the owner sees to it that both agree.
  size_t bytes() const { return bytes_; }
  size_t held_bytes() const { return lease_.bytes(); }
  // Sets held_bytes; false, and nothing is changed, if `memory` has not so much.
  bool TryHold(size_t bytes);

  // Whether the engine should go on: if a call has room, or if one that is behind has read since
  // the last call of this function. The sink of such a one stays full while it catches up, but its
  // client does read.
  bool HasRoom() const;

 private:
  struct Follower {
    std::shared_ptr<BoundedSink> sink;
    size_t next = 0;  // number of the next delta to send, counted from the first of the answer
    bool ended = false;
  };

  void FeedOne(Follower& follower);
  bool IsBehind(const Follower& follower) const;
  void EndSlow();
  void Trim();

  const std::string request_id_;
  std::vector<Follower> followers_;
  std::optional<int> queued_;
  std::optional<PromptProgress> progress_;
  std::deque<Delta> deltas_;
  size_t first_ = 0;  // number of deltas_.front(), counted from the first of the answer
  std::optional<Completion> completion_;
  bool kept_ = true;  // whether all events are kept
  size_t bytes_;
  MemoryLease lease_;
  MemoryLease tenant_lease_;
  mutable bool has_read_ = false;  // a call that was behind has read since the last HasRoom
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_FOLLOWED_ANSWER_H_
