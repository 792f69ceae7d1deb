#ifndef ANNULUS_ENGINE_REQUEST_DELTA_ORDER_H_
#define ANNULUS_ENGINE_REQUEST_DELTA_ORDER_H_

#include <cstdint>
#include <iterator>
#include <utility>

#include "engine/api/result.h"

namespace annulus {

// The order of what stands in a Delta.
enum class DeltaRank : uint8_t { kReasoning, kText, kCalls, kNothing };

inline DeltaRank FirstRank(const Delta& delta) {
  if (!delta.reasoning.empty()) return DeltaRank::kReasoning;
  if (!delta.text.empty()) return DeltaRank::kText;
  return delta.calls.empty() ? DeltaRank::kNothing : DeltaRank::kCalls;
}

// Whether what comes next in the answer may join `delta`. `next`: the first of it.
inline bool MayJoin(const Delta& delta, DeltaRank next) {
  if (!delta.calls.empty()) return next >= DeltaRank::kCalls;
  return delta.text.empty() || next >= DeltaRank::kText;
}

// Adds the next part of a call.
inline void AddCallDelta(ToolCallDelta call, Delta& delta) {
  if (!delta.calls.empty() && delta.calls.back().index == call.index) {
    delta.calls.back().arguments += call.arguments;
  } else {
    delta.calls.push_back(std::move(call));
  }
}

// Adds what comes next in the answer, if it may join `delta`.
inline void Join(Delta next, Delta& delta) {
  delta.text += next.text;
  delta.token_ids.insert(delta.token_ids.end(), next.token_ids.begin(), next.token_ids.end());
  delta.logprobs.insert(delta.logprobs.end(), std::make_move_iterator(next.logprobs.begin()),
                        std::make_move_iterator(next.logprobs.end()));
  delta.reasoning += next.reasoning;
  for (ToolCallDelta& call : next.calls) AddCallDelta(std::move(call), delta);
  delta.evidence.insert(delta.evidence.end(), std::make_move_iterator(next.evidence.begin()),
                        std::make_move_iterator(next.evidence.end()));
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_DELTA_ORDER_H_
