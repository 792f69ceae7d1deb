#include "engine/text/answer/call_id.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace annulus {

// Of the generator splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014).
std::string MakeCallId(uint64_t salt, int32_t index) {
  constexpr absl::string_view kSigns =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t z = salt + (static_cast<uint64_t>(index) + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  z ^= z >> 31;
  std::string id(9, '0');
  for (char& c : id) {
    c = kSigns[z % kSigns.size()];
    z /= kSigns.size();
  }
  return id;
}

bool IsUsableCallId(absl::string_view id) {
  constexpr size_t kMostId = 64;
  return !id.empty() && id.size() <= kMostId &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) { return absl::ascii_isgraph(c); });
}

}  // namespace annulus
