#ifndef ANNULUS_ENGINE_RING_WIRE_FRAME_H_
#define ANNULUS_ENGINE_RING_WIRE_FRAME_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "engine/ring/channel.h"

namespace annulus {

// What travels ahead of the bytes of a message to another process.
struct FrameHeader {
  uint64_t epoch = 0;     // of the ring that sent it
  uint64_t tag = 0;       // see RingMessage
  uint64_t number = 0;    // among the messages from `from` to `to` in this epoch, from 0 on
  int32_t from = 0;       // rank
  int32_t to = 0;         // rank
  uint64_t bytes = 0;     // of all parts
  uint64_t layout = 0;    // FrameLayout of the parts
  uint64_t checksum = 0;  // FrameChecksum of the parts
};

// Encoded: 8 bytes that say "a frame, in this version", the fields as little-endian numbers, and
// XXH3 (64 bits) of all before.
inline constexpr size_t kFrameHeaderBytes = 72;
using FrameHeaderBytes = std::array<std::byte, kFrameHeaderBytes>;

FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header);

// INVALID_ARGUMENT if the bytes do not begin as a frame does; DATA_LOSS if they do, and their
// checksum is wrong. The fields of a good header may still have any value.
absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes);

// XXH3 (64 bits) of the sizes of the parts: two messages of equal length may be cut differently.
uint64_t FrameLayout(std::span<const size_t> part_bytes);

// XXH3 (64 bits) of the bytes of all parts, one after the other.
uint64_t FrameChecksum(const RingParts& parts);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_FRAME_H_
