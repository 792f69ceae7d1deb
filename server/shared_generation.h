#ifndef ANNULUS_SERVER_SHARED_GENERATION_H_
#define ANNULUS_SERVER_SHARED_GENERATION_H_

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/bounded_sink.h"
#include "server/call_memory.h"
#include "server/memory_budget.h"

namespace annulus {

class SharedGeneration;

// A request that its client has named: an idempotency key within its tenant.
struct RequestKey {
  std::string tenant;
  std::string id;

  friend auto operator<=>(const RequestKey&, const RequestKey&) = default;
};

struct AttachLimits {
  size_t memory = 0;                    // of all events that are kept, in bytes
  std::chrono::milliseconds window{0};  // how long those of an answer stay once it is complete
};

// The requests that have a name: those that run, and those whose answer is complete and may still
// be asked for again. Thread-safe.
class AttachTable {
 public:
  explicit AttachTable(const AttachLimits& limits);
  ~AttachTable();  // ends no request
  AttachTable(const AttachTable&) = delete;
  AttachTable& operator=(const AttachTable&) = delete;

  // `sink` follows the request of that name, from its first event on; null if there is none.
  // `content` tells requests apart: ALREADY_EXISTS if the name is another one's.
  // RESOURCE_EXHAUSTED if too many follow it, or its events could not be kept.
  absl::StatusOr<std::shared_ptr<SharedGeneration>> Follow(const RequestKey& key,
                                                           const std::string& content,
                                                           const std::shared_ptr<BoundedSink>& sink,
                                                           SteadyTime now);

  // The same, but makes one if there is none. `is_new`: the caller must now submit it to the
  // engine, with the result as its sink, and call Submitted or Refused.
  struct Claimed {
    std::shared_ptr<SharedGeneration> generation;
    bool is_new = false;
  };
  absl::StatusOr<Claimed> Claim(const RequestKey& key, const std::string& content,
                                const std::shared_ptr<BoundedSink>& sink, SteadyTime now);

  // Lets answers go whose window is over. Called now and then.
  void Expire(SteadyTime now);

  size_t bytes() const;  // of the events that are kept

 private:
  friend class SharedGeneration;
  using Entries = std::map<RequestKey, std::shared_ptr<SharedGeneration>>;

  struct Tenant {
    // Counts what the tenant's events take, without a limit of its own.
    std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>(SIZE_MAX);
    std::map<uint64_t, SharedGeneration*> complete;  // of the entries; the oldest first
  };

  // Outlives the table as long as the engine has a generation.
  struct State {
    explicit State(const AttachLimits& limits)
        : limits(limits), memory(std::make_shared<MemoryBudget>(limits.memory)) {}

    // Sets what `generation` takes. Room is made by the tenant that takes most, so that one who
    // keeps much displaces its own answers and not another's, even if slow calls read them. False:
    // there is nothing to let go that is not due to it as well.
    bool Resize(SharedGeneration& generation, size_t bytes);
    // Lets the oldest complete answer of the tenant go. False: there is none.
    bool DropOldest(Tenant& tenant);
    // Keeps no more events of the tenant's largest running request. False: it keeps none.
    bool CutLargest(const std::string& tenant);
    // Ends the calls that still read the oldest complete answer of the tenant, and lets it go.
    // False: there is none.
    bool EndOldestRead(Tenant& tenant);
    void Drop(const SharedGeneration& generation);
    void Expire(SteadyTime now);

    const AttachLimits limits;
    const std::shared_ptr<MemoryBudget> memory;
    std::mutex mutex;  // guards all below, and all of the generations
    Entries entries;
    std::map<std::string, Tenant> tenants;  // as many as the tokens file ever had
    uint64_t next_number = 0;
  };

  absl::StatusOr<std::shared_ptr<SharedGeneration>> FollowLocked(
      const RequestKey& key, const std::string& content, const std::shared_ptr<BoundedSink>& sink,
      SteadyTime now);

  const std::shared_ptr<State> state_;
};

// One request of the engine and all calls that follow it. Keeps the events, so that each call gets
// them from the first; of positions and progress the newest. A call's own sink has no more of them
// than its limits allow, and gets more as its reader takes them. If the events cannot be kept, a
// call that is behind while another keeps up is ended with SLOW_READER. The work lasts while a call
// is attached: when the last one leaves, the engine's request is cancelled, and the name is free.
class SharedGeneration final : public TokenSink {
 public:
  SharedGeneration(std::shared_ptr<AttachTable::State> table, RequestKey key, std::string content);

  // For whoever claimed it. What it holds of the memory for requests until the engine has ended it.
  absl::Status Hold(const std::shared_ptr<MemoryBudget>& prompts, size_t bytes);
  // Before the engine gets it.
  void SetOrigin(v1::Origin origin);
  v1::Origin origin() const;
  // Whether a call follows it still: one may have come since it was claimed.
  bool Wanted() const;
  // The engine has it, or refuses it.
  void Submitted(Engine& engine, RequestId id);
  void Refused(absl::Status status);

  // For the calls. A reader took from its sink.
  void Refill(const BoundedSink& sink);
  // The call ends, or has ended.
  void Leave(const BoundedSink& sink);

  void OnQueued(int position) override;
  void OnProgress(const PromptProgress& progress) override;
  void OnDelta(Delta delta) override;
  void OnDone(Completion completion) override;
  // Somebody keeps up: whoever does not finds in the kept events what he missed, or is ended if
  // they are not kept. Or somebody has read since the last call: who catches up on what he missed
  // has a full sink whenever one looks, and must not pass for one who does not read.
  bool HasRoom() const override;

 private:
  friend class AttachTable;
  struct Follower {
    std::shared_ptr<BoundedSink> sink;
    size_t next = 0;  // delta, from the first of all
    bool ended = false;
  };

  void AttachLocked(const std::shared_ptr<BoundedSink>& sink);
  void FeedLocked(Follower& follower);
  bool BehindLocked(const Follower& follower) const;
  bool BeingReadLocked() const;  // some follower is behind
  void EndSlowLocked();
  void EndBehindLocked();  // every follower that is behind
  bool ResizeLocked(size_t bytes);
  void KeepLocked(Delta delta);
  void TrimLocked();

  const std::shared_ptr<AttachTable::State> table_;
  const RequestKey key_;
  const std::string content_;
  // All below under the table's mutex.
  v1::Origin origin_;
  std::vector<Follower> followers_;
  std::optional<int> queued_;
  std::optional<PromptProgress> progress_;
  std::deque<Delta> deltas_;
  size_t first_ = 0;  // number of the first of deltas_
  bool kept_ = true;  // all events are there
  size_t bytes_ = 0;
  MemoryLease lease_;
  MemoryLease tenant_lease_;  // as many bytes, of the tenant's
  std::optional<Completion> completion_;
  SteadyTime completed_{};
  uint64_t number_ = 0;  // among those that are complete
  std::optional<CallMemory> request_memory_;
  Engine* engine_ = nullptr;  // set together with id_, while the engine has it
  RequestId id_ = 0;
  bool abandoned_ = false;
  mutable bool has_read_ = false;  // a follower that was behind, since the last HasRoom
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SHARED_GENERATION_H_
