#include "kernels/base/format_bytes.h"

#include <cmath>
#include <cstddef>
#include <iterator>

#include "absl/strings/str_format.h"

namespace annulus {

std::string FormatBytes(uint64_t bytes) {
  if (bytes == 1) return "1 byte";
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  // What would be written as 1024.0 is 1.0 of the next unit.
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (value == std::floor(value)) return absl::StrFormat("%.0f %s", value, kUnits[unit]);
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

}  // namespace annulus
