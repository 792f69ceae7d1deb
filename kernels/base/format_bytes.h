#ifndef ANNULUS_KERNELS_BASE_FORMAT_BYTES_H_
#define ANNULUS_KERNELS_BASE_FORMAT_BYTES_H_

#include <cstdint>
#include <string>

namespace annulus {

// Formats a size for messages: 1610612736 -> "1.5 GiB".
std::string FormatBytes(uint64_t bytes);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_FORMAT_BYTES_H_
