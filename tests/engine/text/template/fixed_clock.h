#ifndef ANNULUS_TESTS_ENGINE_TEXT_TEMPLATE_FIXED_CLOCK_H_
#define ANNULUS_TESTS_ENGINE_TEXT_TEMPLATE_FIXED_CLOCK_H_

#include <ctime>

namespace annulus::testing {

// Wednesday, 2025-01-15 09:05:07: what the goldens were made with.
inline std::tm FixedNow() {
  std::tm now{};
  now.tm_year = 125;
  now.tm_mday = 15;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 7;
  now.tm_wday = 3;
  now.tm_yday = 14;
  return now;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_TEXT_TEMPLATE_FIXED_CLOCK_H_
