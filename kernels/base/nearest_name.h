#ifndef ANNULUS_KERNELS_BASE_NEAREST_NAME_H_
#define ANNULUS_KERNELS_BASE_NEAREST_NAME_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus {

// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (optimal
// string alignment). Time and memory are the product of the lengths.
int EditDistance(absl::string_view a, absl::string_view b);

// The member of `known` with the smallest edit distance to `given`; the first one where several
// tie, empty where `known` is empty. `given` is cut to 64 bytes: nobody means a longer name.
std::string NearestName(absl::string_view given, const std::vector<std::string>& known);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_NEAREST_NAME_H_
