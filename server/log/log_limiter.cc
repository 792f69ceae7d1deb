#include "server/log/log_limiter.h"

#include <algorithm>

namespace annulus::server {

LogLimiter::Verdict LogLimiter::Ask(absl::string_view event, Time now) {
  std::lock_guard lock(mutex_);
  auto found = buckets_.find(event);
  if (found == buckets_.end()) {
    found = buckets_.emplace(std::string(event), Bucket{kBurst, 0, now}).first;
  }
  Bucket& bucket = found->second;
  const double seconds = std::chrono::duration<double>(now - bucket.last).count();
  bucket.tokens = std::min(kBurst, bucket.tokens + std::max(0.0, seconds) * kPerSecond);
  bucket.last = std::max(bucket.last, now);
  if (bucket.tokens < 1) {
    ++bucket.suppressed;
    ++total_;
    return {};
  }
  bucket.tokens -= 1;
  return {true, std::exchange(bucket.suppressed, 0)};
}

std::vector<std::pair<std::string, uint64_t>> LogLimiter::TakeQuiet(Time now) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::string, uint64_t>> quiet;
  for (auto& [event, bucket] : buckets_) {
    if (bucket.suppressed == 0 || now - bucket.last < kQuiet) continue;
    quiet.emplace_back(event, std::exchange(bucket.suppressed, 0));
  }
  return quiet;
}

uint64_t LogLimiter::suppressed() const {
  std::lock_guard lock(mutex_);
  return total_;
}

}  // namespace annulus::server
