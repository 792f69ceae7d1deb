#ifndef ANNULUS_SERVER_IDENTITY_QUOTA_BOOK_H_
#define ANNULUS_SERVER_IDENTITY_QUOTA_BOOK_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/api.h"
#include "server/identity/tenant_file.h"

namespace annulus {

enum class Quota : uint8_t {
  kRequestsPerMinute,
  kTokensPerMinute,
  kRunningRequests,
  kDocuments,
  kDocumentBytes,
  kKvBytes,  // the engine counts and refuses
};
inline constexpr int kQuotaKinds = 6;
const char* QuotaName(Quota quota);  // as in the tokens file

// What a tenant may not have now.
struct QuotaRefusal {
  Quota quota = Quota::kRequestsPerMinute;
  int64_t limit = 0;
  std::chrono::milliseconds retry{0};  // when to try again; 0: time alone does not help
};

class QuotaBook;

// One generation under way, from QuotaBook::Begin on. Thread-safe.
class QuotaPlace {
 public:
  QuotaPlace(std::shared_ptr<QuotaBook> book, const Caller& caller)
      : book_(std::move(book)), caller_(caller) {}
  ~QuotaPlace() { End(); }
  QuotaPlace(const QuotaPlace&) = delete;
  QuotaPlace& operator=(const QuotaPlace&) = delete;

  // Tokens of the prompt that was taken, or of the answer.
  void CountTokens(int64_t tokens);

  // The generation runs no more. Does nothing the second time; the destructor does the same.
  void End();

 private:
  const std::shared_ptr<QuotaBook> book_;
  const Caller caller_;
  std::atomic<bool> ended_{false};
};

// One document and the bytes of its text, from the first of them until it is gone. Not thread-safe.
class DocumentShare {
 public:
  DocumentShare() = default;  // without limits
  DocumentShare(std::shared_ptr<QuotaBook> book, Caller caller)
      : book_(std::move(book)), caller_(std::move(caller)) {}
  ~DocumentShare();
  DocumentShare(DocumentShare&& other) noexcept
      : book_(std::move(other.book_)),
        caller_(std::move(other.caller_)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  DocumentShare& operator=(DocumentShare&&) = delete;

  // Takes so many bytes more, or says why not.
  std::optional<QuotaRefusal> Grow(size_t more);

 private:
  std::shared_ptr<QuotaBook> book_;
  Caller caller_;
  size_t bytes_ = 0;
};

// What each tenant uses of its quotas. Requests and tokens a minute are levels that fill up evenly
// and hold a minute's worth at most, so a tenant may use a minute's worth at once. How long an
// answer becomes is not known when it begins: a generation begins while there are tokens left, what
// it uses beyond is owed, and nothing begins before that has filled up again. Thread-safe.
class QuotaBook : public std::enable_shared_from_this<QuotaBook> {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Clock = Time (*)();

  explicit QuotaBook(Clock clock = &std::chrono::steady_clock::now) : clock_(clock) {}

  // Begins a generation, or says why not: `refusal` is set and null returned.
  std::unique_ptr<QuotaPlace> Begin(const Caller& caller, std::optional<QuotaRefusal>& refusal);

  // Refusals so far.
  // The engine refused a request of the tenant for want of kv_bytes.
  void CountKvRefusal() { Refuse(Quota::kKvBytes, 0, std::chrono::milliseconds(0)); }

  uint64_t refusals(Quota quota) const {
    return refusals_[static_cast<size_t>(quota)].load(std::memory_order_relaxed);
  }

 private:
  friend class QuotaPlace;
  friend class DocumentShare;
  struct Level {
    int64_t per_minute = 0;  // as the newest call was allowed; 0: without limit
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

  // `fresh`: they are a document's first.
  std::optional<QuotaRefusal> TakeDocumentBytes(const Caller& caller, size_t bytes, bool fresh);
  void GiveBackDocument(const Caller& caller, size_t bytes);
  std::optional<QuotaRefusal> Check(const Quotas& quotas, Account& account);
  QuotaRefusal Refuse(Quota quota, int64_t limit, std::chrono::milliseconds retry);
  void CountTokens(const Caller& caller, int64_t tokens);
  void End(const Caller& caller);

  const Clock clock_;
  std::array<std::atomic<uint64_t>, kQuotaKinds> refusals_{};
  std::mutex mutex_;
  std::map<TenantId, Account> accounts_;  // of known tenants: as many as the tokens file ever had
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_IDENTITY_QUOTA_BOOK_H_
