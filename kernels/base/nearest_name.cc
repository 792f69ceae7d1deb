#include "kernels/base/nearest_name.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/match.h"

namespace annulus {

int EditDistance(absl::string_view a, absl::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<int> table((a.size() + 1) * columns);
  auto at = [&](size_t i, size_t j) -> int& { return table[i * columns + j]; };
  for (size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replace = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

namespace {

// The distance of a name whose first words were left out: further than a slip, nearer than chance.
constexpr int kWordsLeftOut = 3;

// Whether `known` ends in the word `given`: "--max-running" for "--running".
bool EndsInWord(absl::string_view known, absl::string_view given) {
  given.remove_prefix(std::min(given.find_first_not_of('-'), given.size()));
  if (given.empty() || known.size() <= given.size() || !absl::EndsWith(known, given)) return false;
  const char before = known[known.size() - given.size() - 1];
  return before == '-' || before == '_';
}

}  // namespace

std::string NearestName(absl::string_view given, const std::vector<std::string>& known) {
  const absl::string_view name = given.substr(0, 64);
  std::pair<int, int> best(std::numeric_limits<int>::max(), 0);
  std::string nearest;
  for (const std::string& candidate : known) {
    // Of several that end in the same word, the one that lacks least before it.
    const int edits = EditDistance(name, candidate);
    const int distance = EndsInWord(candidate, name) ? std::min(edits, kWordsLeftOut) : edits;
    if (std::pair(distance, edits) >= best) continue;
    best = {distance, edits};
    nearest = candidate;
  }
  return nearest;
}

}  // namespace annulus
