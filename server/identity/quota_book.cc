#include "server/identity/quota_book.h"

#include <algorithm>
#include <cmath>

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

constexpr double kSecondsOfMinute = 60;
constexpr milliseconds kRetryRunning{1000};  // a guess: when a running request ends is not known

}  // namespace

const char* QuotaName(Quota quota) {
  switch (quota) {
    case Quota::kRequestsPerMinute:
      return "requests_per_minute";
    case Quota::kTokensPerMinute:
      return "tokens_per_minute";
    case Quota::kRunningRequests:
      return "running_requests";
    case Quota::kDocuments:
      return "documents";
    case Quota::kDocumentBytes:
      return "document_bytes";
    case Quota::kKvBytes:
      return "kv_bytes";
  }
  return "";
}

void QuotaPlace::CountTokens(int64_t tokens) { book_->CountTokens(caller_, tokens); }

void QuotaPlace::End() {
  if (!ended_.exchange(true)) book_->End(caller_);
}

DocumentShare::~DocumentShare() {
  if (bytes_ > 0) book_->GiveBackDocument(caller_, bytes_);
}

std::optional<QuotaRefusal> DocumentShare::Grow(size_t more,
                                                const std::function<bool()>& make_room) {
  if (book_ == nullptr) return std::nullopt;
  while (true) {
    const auto refusal = book_->TakeDocumentBytes(caller_, more, bytes_ == 0);
    if (!refusal) break;
    if (!make_room()) return book_->Refuse(refusal->quota, refusal->limit, refusal->retry);
  }
  bytes_ += more;
  return std::nullopt;
}

// Sets the rate. Until now the level fills at the old rate; a tenant that had no limit starts full.
void QuotaBook::Level::Allow(int64_t rate, Time now) {
  FillUp(now);
  if (per_minute == 0) left = static_cast<double>(rate);
  per_minute = rate;
  left = std::min(left, static_cast<double>(rate));
}

void QuotaBook::Level::FillUp(Time now) {
  const double most = static_cast<double>(per_minute);
  const double seconds = std::chrono::duration<double>(now - at).count();
  left = std::min(most, left + most * std::max(0.0, seconds) / kSecondsOfMinute);
  at = now;
}

milliseconds QuotaBook::Level::UntilOne() const {
  const double seconds =
      std::max(0.0, 1 - left) * kSecondsOfMinute / static_cast<double>(per_minute);
  return milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)) + 1);
}

std::unique_ptr<QuotaPlace> QuotaBook::Begin(const Caller& caller,
                                             std::optional<QuotaRefusal>& refusal) {
  {
    std::lock_guard lock(mutex_);
    Account& account = accounts_[caller.tenant];
    refusal = Check(caller.quotas, account);
    if (refusal) return nullptr;
    if (caller.quotas.requests_per_minute > 0) account.requests.left -= 1;
    ++account.running;
  }
  return std::make_unique<QuotaPlace>(shared_from_this(), caller);
}

std::optional<QuotaRefusal> QuotaBook::Check(const Quotas& quotas, Account& account) {
  const Time now = clock_();
  if (quotas.running_requests > 0 && account.running >= quotas.running_requests) {
    return Refuse(Quota::kRunningRequests, quotas.running_requests, kRetryRunning);
  }
  account.requests.Allow(quotas.requests_per_minute, now);
  account.tokens.Allow(quotas.tokens_per_minute, now);
  if (quotas.requests_per_minute > 0 && account.requests.left < 1) {
    return Refuse(Quota::kRequestsPerMinute, quotas.requests_per_minute,
                  account.requests.UntilOne());
  }
  if (quotas.tokens_per_minute > 0 && account.tokens.left < 1) {
    return Refuse(Quota::kTokensPerMinute, quotas.tokens_per_minute, account.tokens.UntilOne());
  }
  return std::nullopt;
}

QuotaRefusal QuotaBook::Refuse(Quota quota, int64_t limit, milliseconds retry) {
  refusals_[static_cast<size_t>(quota)].fetch_add(1, std::memory_order_relaxed);
  return {quota, limit, retry};
}

void QuotaBook::CountTokens(const Caller& caller, int64_t tokens) {
  std::lock_guard lock(mutex_);
  Level& level = accounts_[caller.tenant].tokens;
  if (level.per_minute == 0) return;
  level.FillUp(clock_());
  level.left -= static_cast<double>(tokens);
}

void QuotaBook::End(const Caller& caller) {
  std::lock_guard lock(mutex_);
  --accounts_[caller.tenant].running;
}

std::optional<QuotaRefusal> QuotaBook::TakeDocumentBytes(const Caller& caller, size_t bytes,
                                                         bool fresh) {
  std::lock_guard lock(mutex_);
  Account& account = accounts_[caller.tenant];
  const int64_t most = caller.quotas.documents;
  if (fresh && most > 0 && account.documents >= most) {
    return QuotaRefusal{Quota::kDocuments, most};
  }
  size_t& used = account.document_bytes;
  const size_t limit = static_cast<size_t>(caller.quotas.document_bytes);
  // A reload may have set the limit below the current use.
  if (limit > 0 && (used > limit || bytes > limit - used)) {
    return QuotaRefusal{Quota::kDocumentBytes, caller.quotas.document_bytes};
  }
  used += bytes;
  account.documents += fresh ? 1 : 0;
  return std::nullopt;
}

void QuotaBook::GiveBackDocument(const Caller& caller, size_t bytes) {
  std::lock_guard lock(mutex_);
  Account& account = accounts_[caller.tenant];
  account.document_bytes -= bytes;
  --account.documents;
}

}  // namespace annulus::server
