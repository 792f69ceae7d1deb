#ifndef ANNULUS_TESTS_SUPPORT_EVENTUALLY_H_
#define ANNULUS_TESTS_SUPPORT_EVENTUALLY_H_

#include <chrono>
#include <thread>

namespace annulus::testing {

// Whether `condition()` comes true, for what another thread or process does and tells nobody of: a
// file that is removed, a figure of a snapshot. It is asked every few milliseconds for a minute at
// most. Where the code under test notifies somebody, wait for that instead.
template <typename Condition>
bool Eventually(const Condition& condition) {
  const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > late) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_EVENTUALLY_H_
