#ifndef ANNULUS_KERNELS_BASE_NEAREST_NAME_H_
#define ANNULUS_KERNELS_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// (optimal string alignment). Takes time and memory proportional to the product of the lengths.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the name in `known` with the least edit distance to `given`, of whose bytes only the
// first 64 count; if several are equally near, the first. A name that ends in the word `given`
// ("--max-running" for "--running") counts as at most 3 away. Returns a name however far it is; ""
// only if `known` is empty.
std::string NearestName(absl::string_view given, const std::vector<std::string>& known);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_NEAREST_NAME_H_
