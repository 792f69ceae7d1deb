#ifndef ANNULUS_ENGINE_DISK_CHECKSUM_H_
#define ANNULUS_ENGINE_DISK_CHECKSUM_H_

#include <array>
#include <cstddef>
#include <span>

namespace annulus {

// XXH3, 128 bits. Detects failures of a disk, not forgery: whoever can write into a PrivateFolder
// can forge files, and only its owner can.
using Checksum = std::array<std::byte, 16>;

// The checksum of the concatenated parts.
Checksum ChecksumOf(std::span<const std::span<const std::byte>> parts);
Checksum ChecksumOf(std::span<const std::byte> bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_DISK_CHECKSUM_H_
