#ifndef ANNULUS_SERVER_IDENTITY_QUOTA_BOOK_H_
#define ANNULUS_SERVER_IDENTITY_QUOTA_BOOK_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/api.h"
#include "server/identity/tenant_file.h"

namespace annulus::server {

enum class Quota : uint8_t {
  kRequestsPerMinute,
  kTokensPerMinute,
  kRunningRequests,
  kDocuments,
  kDocumentBytes,
  kKvBytes,  // counted and enforced by the engine
};
inline constexpr int kQuotaKinds = 6;
const char* QuotaName(Quota quota);  // as in the tokens file

// The quota that a tenant has used up.
struct QuotaRefusal {
  Quota quota = Quota::kRequestsPerMinute;
  int64_t limit = 0;
  std::chrono::milliseconds retry{0};  // when to retry; 0: waiting alone does not help
};

class QuotaBook;

// A running generation, counted from QuotaBook::Begin until End. Thread-safe.
class QuotaPlace {
 public:
  QuotaPlace(std::shared_ptr<QuotaBook> book, const Caller& caller)
      : book_(std::move(book)), caller_(caller) {}
  ~QuotaPlace() { End(); }
  QuotaPlace(const QuotaPlace&) = delete;
  QuotaPlace& operator=(const QuotaPlace&) = delete;

  // Counts tokens of the accepted prompt or of the answer.
  void CountTokens(int64_t tokens);

  // The generation has ended. No-op the second time. The destructor calls it.
  void End();

 private:
  const std::shared_ptr<QuotaBook> book_;
  const Caller caller_;
  std::atomic<bool> ended_{false};
};

// A document's part of the tenant's quotas, from the first byte of its upload until the document is
// destroyed. Not thread-safe.
class DocumentShare {
 public:
  DocumentShare() = default;  // no limits, counts nothing
  DocumentShare(std::shared_ptr<QuotaBook> book, Caller caller)
      : book_(std::move(book)), caller_(std::move(caller)) {}
  ~DocumentShare();
  DocumentShare(DocumentShare&& other) noexcept
      : book_(std::move(other.book_)),
        caller_(std::move(other.caller_)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DocumentShare& operator=(DocumentShare&&) = delete;

  // Counts `more` bytes (> 0), or returns the quota that does not allow them, once `make_room`,
  // which may end other shares of the tenant, returns false.
  std::optional<QuotaRefusal> Grow(
      size_t more, const std::function<bool()>& make_room = [] { return false; });

 private:
  std::shared_ptr<QuotaBook> book_;
  Caller caller_;
  size_t bytes_ = 0;
};

// Counts each tenant's use of its quotas. Requests and tokens per minute are token buckets: they
// fill evenly and hold at most one minute's amount, which a tenant may use at once. The length of
// an answer is not known in advance. So a generation may begin while any tokens are left; if it
// uses more, the level becomes negative, and nothing begins before it has filled up again.
// Thread-safe.
class QuotaBook : public std::enable_shared_from_this<QuotaBook> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Clock = Time (*)();

  explicit QuotaBook(Clock clock = &std::chrono::steady_clock::now) : clock_(clock) {}

  // Begins a generation. If a quota does not allow it, sets `refusal` and returns null.
  std::unique_ptr<QuotaPlace> Begin(const Caller& caller, std::optional<QuotaRefusal>& refusal);

  // Counts that the engine refused a request because of kv_bytes.
  void CountKvRefusal() { Refuse(Quota::kKvBytes, 0, std::chrono::milliseconds(0)); }

  // Number of refusals so far.
  uint64_t refusals(Quota quota) const {
    return refusals_[static_cast<size_t>(quota)].load(std::memory_order_relaxed);
  }

 private:
  friend class QuotaPlace;
  friend class DocumentShare;
  struct Level {
    int64_t per_minute = 0;  // the rate at the latest call; 0: no limit
    double left = 0;
    Time at;
    void Allow(int64_t rate, Time now);
    void FillUp(Time now);
    std::chrono::milliseconds UntilOne() const;
  };
  struct Account {
    Level requests;
    Level tokens;
    int64_t running = 0;
    int64_t documents = 0;
    size_t document_bytes = 0;
  };

  // `fresh`: these are the first bytes of a document. Does not count a refusal.
  std::optional<QuotaRefusal> TakeDocumentBytes(const Caller& caller, size_t bytes, bool fresh);
  void GiveBackDocument(const Caller& caller, size_t bytes);
  std::optional<QuotaRefusal> Check(const Quotas& quotas, Account& account);
  QuotaRefusal Refuse(Quota quota, int64_t limit, std::chrono::milliseconds retry);
  void CountTokens(const Caller& caller, int64_t tokens);
  void End(const Caller& caller);

  const Clock clock_;
  std::array<std::atomic<uint64_t>, kQuotaKinds> refusals_{};
  std::mutex mutex_;
  std::map<TenantId, Account> accounts_;  // one for each tenant that the tokens file ever had
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_QUOTA_BOOK_H_
