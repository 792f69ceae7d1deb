#ifndef ANNULUS_TESTS_SUPPORT_THINNED_H_
#define ANNULUS_TESTS_SUPPORT_THINNED_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/base/sanitizers.h"

namespace annulus::testing {

// Which cases tests take that do not take all of theirs. tests/run.sh sets ANNULUS_TEST_SEED to the
// day, and prints it.
inline uint64_t TestSeed() {
  const char* value = std::getenv("ANNULUS_TEST_SEED");
  return value != nullptr ? std::stoull(value) : 1;
}

// `most` of the cases, in their order: others with another seed. All of them if
// ANNULUS_PRODUCTS=full, as in tests/nightly.sh. Name parameters by their content, so that a name
// means the same case every day.
template <typename Case>
std::vector<Case> Thinned(const std::vector<Case>& all, size_t most) {
  const char* products = std::getenv("ANNULUS_PRODUCTS");
  if (products != nullptr && std::string(products) == "full") return all;
  std::mt19937_64 random(TestSeed());
  std::vector<Case> some;
  std::sample(all.begin(), all.end(), std::back_inserter(some), most, random);
  return some;
}

// All cases, and `most` a day in a build with sanitizers: for cases that differ in numbers, which
// Release compares, and run the same code over the same sizes.
template <typename Case>
std::vector<Case> ThinnedIfSanitized(const std::vector<Case>& all, size_t most) {
  return kSanitized ? Thinned(all, most) : all;
}

// Seeds of `count` random cases: `first` and those after it.
inline std::vector<uint32_t> SeedsFrom(uint32_t first, size_t count) {
  std::vector<uint32_t> seeds(count);
  std::iota(seeds.begin(), seeds.end(), first);
  return seeds;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_THINNED_H_
