#ifndef ANNULUS_ENGINE_BASE_STEADY_TIME_H_
#define ANNULUS_ENGINE_BASE_STEADY_TIME_H_

#include <chrono>

namespace annulus {

// Deadlines and durations use the steady clock only, so jumps of the wall clock do not affect them.
using SteadyTime = std::chrono::steady_clock::time_point;

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_STEADY_TIME_H_
