#ifndef ANNULUS_TESTS_ENGINE_MEMORY_PROPERTY_H_
#define ANNULUS_TESTS_ENGINE_MEMORY_PROPERTY_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "tests/support/thinned.h"

namespace annulus::testing {

// How long and from which seed a test draws random operations. ANNULUS_PROPERTY_OPERATIONS and
// ANNULUS_PROPERTY_SEED override the defaults, for long runs and to repeat a failure.
struct PropertyRun {
  int64_t operations;
  uint64_t seed;

  explicit PropertyRun(int64_t default_operations)
      : operations(Variable("ANNULUS_PROPERTY_OPERATIONS", default_operations)),
        seed(Variable("ANNULUS_PROPERTY_SEED", static_cast<int64_t>(TestSeed()))) {
    std::cout << "ANNULUS_PROPERTY_SEED=" << seed << " ANNULUS_PROPERTY_OPERATIONS=" << operations
              << std::endl;
  }

 private:
  static int64_t Variable(const char* name, int64_t fallback) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::stoll(value) : fallback;
  }
};

// Uniform in [0, bound); bound >= 1.
inline size_t Below(std::mt19937_64& random, size_t bound) {
  return std::uniform_int_distribution<size_t>(0, bound - 1)(random);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_MEMORY_PROPERTY_H_
