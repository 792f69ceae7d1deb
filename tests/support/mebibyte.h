#ifndef ANNULUS_TESTS_SUPPORT_MEBIBYTE_H_
#define ANNULUS_TESTS_SUPPORT_MEBIBYTE_H_

#include <cstddef>

namespace annulus::testing {

inline constexpr size_t kMiB = size_t{1} << 20;

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_MEBIBYTE_H_
