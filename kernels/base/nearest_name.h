#ifndef ANNULUS_KERNELS_BASE_NEAREST_NAME_H_
#define ANNULUS_KERNELS_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// The number of insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`
// (optimal string alignment). Takes time and memory proportional to the product of the lengths.
int EditDistance(absl::string_view a, absl::string_view b);

// The member of `known` nearest to the first 64 bytes of `given` by edit distance, the first of
// several; one that ends in the word `given` ("--max-running" for "--running") counts as 3 away.
std::string NearestName(absl::string_view given, const std::vector<std::string>& known);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_NEAREST_NAME_H_
