#ifndef ANNULUS_BENCH_DEMO_PROSE_H_
#define ANNULUS_BENCH_DEMO_PROSE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus::bench {

// Seeded English-like sentences about invented places, people and ships. The same seed gives the
// same sentences on every machine: only integer arithmetic decides (SplitMix64, Steele, Lea and
// Flood 2014). Everything is printable ASCII without double quotes or backslashes.
class Prose {
 public:
  explicit Prose(uint64_t seed) : state_(seed) {}

  // A sentence of 30 to 250 bytes, without a line end.
  std::string Sentence();

  // Returns `pattern` with every {name} replaced by a fresh draw, left to right. Names: place,
  // PLACE (in capitals), person, ship, cargo, thing, quality, month, weather, year, count, hour,
  // digits, word, and the parts of names that Draw lists. The caller must use no other name.
  std::string Expand(absl::string_view pattern);

 private:
  uint64_t Next();
  // A random number in [0, bound), uniform enough for prose.
  uint64_t Below(uint64_t bound) { return Next() % bound; }
  std::string InventedName(int syllables);
  std::string Draw(absl::string_view name);

  uint64_t state_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_DEMO_PROSE_H_
