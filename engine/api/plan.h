#ifndef ANNULUS_ENGINE_API_PLAN_H_
#define ANNULUS_ENGINE_API_PLAN_H_

// What a request would take, were it submitted now.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace annulus {

// What one rank would hold for a request, in bytes of keys, values and summaries.
struct RankPlan {
  int32_t rank = 0;
  int64_t kv_bytes = 0;        // of prompt and answer, cached pages included
  int64_t cached_bytes = 0;    // of these, pages that are cached already
  int64_t kv_bytes_total = 0;  // that the rank has for all requests
};

// kNow: there is room, in memory that is free or that nobody uses. kLater: once requests that run
// have ended. kNever: Engine::Submit would refuse the request.
enum class RoomFor : uint8_t { kNow, kLater, kNever };

struct RequestPlan {
  RoomFor room = RoomFor::kNow;
  std::string obstacle = {};           // with kNever: why, with needed and available numbers
  std::vector<RankPlan> ranks = {};    // of the ring, ascending; none with kNever
  int64_t cached_tokens = 0;           // of the prompt, that memory has of the tenant's own
  int64_t disk_tokens = 0;             // length of the prompt's beginning that kv_disk has
  std::string policy = "dense";        // as AttentionReport::policy
  std::string choice = {};             // as AttentionReport::choice
  std::optional<double> density = {};  // of the prompt; absent for policies that look at content
  int requests_ahead = 0;              // that wait
  // Seconds until the first token would come, and those of them in which this prompt is computed.
  // Absent while no step was measured, and unless there is room and a place now.
  struct Seconds {
    double first_token = 0;
    double prefill = 0;
  };
  std::optional<Seconds> seconds = {};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_PLAN_H_
