#ifndef ANNULUS_ENGINE_API_PLAN_H_
#define ANNULUS_ENGINE_API_PLAN_H_

// The prediction that Engine::Plan returns.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace annulus {

// The bytes of keys, values and summaries that one rank would hold for a request.
struct RankPlan {
  int32_t rank = 0;
  int64_t kv_bytes = 0;        // for prompt and answer, including cached pages
  int64_t cached_bytes = 0;    // the part of kv_bytes that is already cached
  int64_t kv_bytes_total = 0;  // capacity of the rank for all requests
};

// Whether the request fits. kNow: into memory that is free or can be evicted. kLater: once running
// requests have ended. kNever: Engine::Submit would refuse it.
enum class RoomFor : uint8_t { kNow, kLater, kNever };

// What a request would need if it were submitted now.
struct RequestPlan {
  RoomFor room = RoomFor::kNow;
  std::string obstacle = {};         // if kNever: the reason, with needed and available numbers
  std::vector<RankPlan> ranks = {};  // the ranks of its ring, ascending; empty if kNever
  int64_t cached_tokens = 0;         // tokens of the prompt that the tenant has in memory
  // The tiers' pages of the prompt's prefix, in tokens: those in kv_host, and others on kv_disk.
  int64_t host_tokens = 0;
  int64_t disk_tokens = 0;
  std::string policy = "dense";        // the policy in effect, as in AttentionReport
  std::string choice = {};             // why `auto` took it, as in AttentionReport
  std::optional<double> density = {};  // of the prompt; absent for policies that choose by content
  int requests_ahead = 0;              // number of requests that wait before it
  // Time until the first token, and the part of it spent computing this prompt. Absent before the
  // first measured step, and unless the request could start now.
  struct Seconds {
    double first_token = 0;
    double prefill = 0;
  };
  std::optional<Seconds> seconds = {};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_PLAN_H_
