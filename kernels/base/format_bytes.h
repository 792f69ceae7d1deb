#ifndef ANNULUS_KERNELS_BASE_FORMAT_BYTES_H_
#define ANNULUS_KERNELS_BASE_FORMAT_BYTES_H_

#include <cstdint>
#include <string>

namespace annulus {

// 1610612736 -> "1.5 GiB"; for messages.
std::string FormatBytes(uint64_t bytes);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_FORMAT_BYTES_H_
