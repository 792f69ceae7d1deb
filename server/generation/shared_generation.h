#ifndef ANNULUS_SERVER_GENERATION_SHARED_GENERATION_H_
#define ANNULUS_SERVER_GENERATION_SHARED_GENERATION_H_

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/base/memory_budget.h"
#include "server/config/server_config.h"
#include "server/generation/bounded_sink.h"
#include "server/generation/followed_answer.h"
#include "server/identity/quota_book.h"
#include "server/work/call_memory.h"

namespace annulus::server {

class SharedGeneration;

// NOT_FOUND: there is no request with this request_id to follow.
absl::Status NoSuchRequestError(absl::string_view id);

// Identifies a request by the request_id that its client chose, an idempotency key within the
// tenant.
struct RequestKey {
  std::string tenant;
  std::string id;

  friend auto operator<=>(const RequestKey&, const RequestKey&) = default;
};

// What a transport keeps of the call that made a request, for those that follow it by name.
class AttachNote {
 public:
  virtual ~AttachNote() = default;
};

// How a request outlives the calls that follow it. Over gRPC it does not: when the last one leaves,
// it ends.
struct Lasting {
  // When nobody follows it any more, it goes on for AttachLimits::linger.
  bool lingers = false;
  // The client gave it no name, so it is kept only until its answer was delivered. Until then, a
  // call with the same content can join it once nobody follows it any more.
  bool unnamed = false;
  std::shared_ptr<const AttachNote> note = nullptr;
};

// The requests that later calls can follow, by their request_id or their content: running ones, and
// those whose complete answer is still kept. Thread-safe.
class AttachTable {
 public:
  explicit AttachTable(const AttachLimits& limits);
  ~AttachTable();  // ends no request
  AttachTable(const AttachTable&) = delete;
  AttachTable& operator=(const AttachTable&) = delete;

  // Makes `sink` follow the request with that key, from its first event on. Returns null if there
  // is no such request. `content` is a hash of the request: ALREADY_EXISTS if the existing request
  // has another one. RESOURCE_EXHAUSTED if 16 calls follow the request already, or if its events
  // could not all be kept.
  //
  // `unplaced`: not OK if the call has no place in the quotas, and says why. Then the call may
  // follow only a request that has ended or lingers, whose place it takes over (TakePlace). It gets
  // this error for others: their places are those of other calls, which may leave first.
  absl::StatusOr<std::shared_ptr<SharedGeneration>> Follow(
      const RequestKey& key, const std::string& content, const std::shared_ptr<BoundedSink>& sink,
      SteadyTime now, const absl::Status& unplaced = absl::OkStatus());

  // The same for a request of any content. NOT_FOUND if there is none.
  absl::StatusOr<std::shared_ptr<SharedGeneration>> FollowNamed(
      const RequestKey& key, const std::shared_ptr<BoundedSink>& sink, SteadyTime now,
      const absl::Status& unplaced = absl::OkStatus());
  // The same for the newest unnamed request of the tenant that has this content and that nobody
  // follows any more; null if there is none.
  std::shared_ptr<SharedGeneration> Join(const std::string& tenant, const std::string& content,
                                         const std::shared_ptr<BoundedSink>& sink, SteadyTime now);
  // The note of a request; null if there is no such request, or if it has none.
  std::shared_ptr<const AttachNote> NoteOf(const RequestKey& key) const;

  // The same, but creates the request if there is none. If `is_new`, the caller must submit it to
  // the engine with `generation` as its sink, and then call Submitted or Refused.
  struct Claimed {
    std::shared_ptr<SharedGeneration> generation;
    bool is_new = false;
  };
  absl::StatusOr<Claimed> Claim(const RequestKey& key, const std::string& content,
                                const std::shared_ptr<BoundedSink>& sink, SteadyTime now,
                                const Lasting& lasting = {});

  // Drops answers whose window is over, and ends requests that have lingered for long enough. Call
  // it periodically.
  void Expire(SteadyTime now);

  size_t bytes() const;       // memory of the kept events
  size_t most_bytes() const;  // the most that they ever took at a time

 private:
  friend class SharedGeneration;
  using Entries = std::map<RequestKey, std::shared_ptr<SharedGeneration>>;

  struct Tenant {
    // Counts the memory of the tenant's events; has no limit.
    std::shared_ptr<MemoryBudget> memory = std::make_shared<MemoryBudget>(SIZE_MAX);
    std::map<uint64_t, SharedGeneration*> complete;  // its complete entries, the oldest first
  };

  // Shared with the generations, which may outlive the table.
  struct State {
    explicit State(const AttachLimits& limits)
        : limits(limits), memory(std::make_shared<MemoryBudget>(limits.memory)) {}

    // Holds the memory that the events of `generation` take. Makes room at the cost of the tenant
    // that takes most, so that a tenant with many answers displaces its own and not another's, even
    // if slow calls read them. Returns false if no room can be made.
    bool Keep(SharedGeneration& generation);
    // Drops the tenant's oldest complete answer that nobody is reading. Returns false if there is
    // none.
    bool DropOldest(Tenant& tenant);
    // Stops keeping events of the tenant's largest running request. Returns false if there is no
    // such request.
    bool CutLargest(const std::string& tenant);
    // Ends the calls that still read the tenant's oldest complete answer, and drops it. Returns
    // false if there is none.
    bool EndOldestRead(Tenant& tenant);
    void Drop(const SharedGeneration& generation);
    void Expire(SteadyTime now);

    const AttachLimits limits;
    const std::shared_ptr<MemoryBudget> memory;
    std::mutex mutex;  // guards everything below, and all generations
    Entries entries;
    std::set<SharedGeneration*> lingering;
    // Complete unnamed requests that nobody follows, by tenant and content.
    std::map<std::pair<std::string, std::string>, SharedGeneration*> unfollowed;
    std::map<std::string, Tenant> tenants;  // one for each tenant that the tokens file ever had
    uint64_t next_number = 0;
  };

  // `content`: null for any.
  absl::StatusOr<std::shared_ptr<SharedGeneration>> FollowLocked(
      const RequestKey& key, const std::string* content, const std::shared_ptr<BoundedSink>& sink,
      SteadyTime now, const absl::Status& unplaced = absl::OkStatus());

  const std::shared_ptr<State> state_;
};

// One request of the engine and all calls that follow it (FollowedAnswer). If there is no memory to
// keep its events, or if other tenants need it, they are not kept. When the last call leaves, the
// engine's request is cancelled and the request_id becomes free, at once or after a while
// (Lasting::lingers).
class SharedGeneration final : public TokenSink {
 public:
  // Requires the table's mutex to be held.
  SharedGeneration(std::shared_ptr<AttachTable::State> table, const RequestKey& key,
                   std::string content, Lasting lasting);

  const std::string& request_id() const { return key_.id; }

  // The functions down to Refused are for the call that claimed the request, origin() for all.

  // Call this before the engine gets the request.
  void SetOrigin(v1::Origin origin);
  // The ring degree is 0 until OnProgress or OnDone has told it.
  v1::Origin origin() const;
  // Whether any call follows the request; the one that claimed it may have left.
  bool Wanted() const;
  // The engine has accepted or refused the request.
  void Submitted(Engine& engine, RequestId id);
  void Refused(absl::Status status);

  // The next ones are for all calls that follow the request, each with its own sink.

  // The reader of `sink` has taken an event, so there may be room for more of them.
  void Refill(const BoundedSink& sink);
  // The call of `sink` has ended: it gets no more events. The last one to leave cancels the
  // request, unless it lingers: then it takes `place`, if there is one, and counts by it what it
  // does. No-op if `sink` does not follow.
  void Leave(const BoundedSink& sink, std::shared_ptr<QuotaPlace>* place = nullptr);
  // Hands over the place of a request that lingered until this call; null if it has none.
  std::shared_ptr<QuotaPlace> TakePlace();
  // A client has received the whole answer.
  void Delivered();
  // If the request fails, keeps that for the next call that follows or joins it: this one cannot
  // tell its client.
  void KeepFailure();

  void OnQueued(int position) override;
  void OnProgress(const PromptProgress& progress) override;
  void OnDelta(Delta delta) override;
  void OnDone(Completion completion) override;
  bool HasRoom() const override;

 private:
  friend class AttachTable;

  void AttachLocked(const std::shared_ptr<BoundedSink>& sink);
  void AbandonLocked();
  bool KeepsLocked(bool named);

  const std::shared_ptr<AttachTable::State> table_;
  const RequestKey key_;
  const std::string content_;
  const Lasting lasting_;
  // Guarded by the table's mutex.
  v1::Origin origin_;
  FollowedAnswer answer_;
  SteadyTime completed_{};
  uint64_t number_ = 0;       // key in Tenant::complete
  Engine* engine_ = nullptr;  // set, with id_, while the engine has the request
  RequestId id_ = 0;
  bool abandoned_ = false;
  bool keeps_failure_ = false;
  std::shared_ptr<QuotaPlace> place_;  // of the call that left it, while it lingers
  SteadyTime left_{};                  // when that call left
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_SHARED_GENERATION_H_
