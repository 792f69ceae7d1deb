#include "engine/ring/wire/frame.h"

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <memory>

#include "kernels/base/check.h"

namespace annulus {
namespace {

static_assert(std::endian::native == std::endian::little, "frames hold numbers as they lie");

constexpr std::array<char, 8> kFrameMark = {'a', 'n', 'n', 'w', 'i', 'r', 'e', '1'};

// A header as it travels.
struct EncodedHeader {
  std::array<char, 8> mark;
  FrameHeader fields;
  uint64_t checksum;  // of the above
};
static_assert(sizeof(FrameHeader) == 56 && sizeof(EncodedHeader) == kFrameHeaderBytes,
              "headers have no gaps, which would hold any bytes");

uint64_t HashOfHeader(const EncodedHeader& encoded) {
  return XXH3_64bits(&encoded, offsetof(EncodedHeader, checksum));
}

}  // namespace

FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header) {
  EncodedHeader encoded{kFrameMark, header, 0};
  encoded.checksum = HashOfHeader(encoded);
  return std::bit_cast<FrameHeaderBytes>(encoded);
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(std::span<const std::byte> bytes) {
  EncodedHeader encoded;
  if (bytes.size() != sizeof(encoded)) {
    return absl::InvalidArgumentError("a frame's header has another length");
  }
  std::memcpy(&encoded, bytes.data(), sizeof(encoded));
  if (encoded.mark != kFrameMark) {
    return absl::InvalidArgumentError("a frame's header begins otherwise");
  }
  if (encoded.checksum != HashOfHeader(encoded)) {
    return absl::DataLossError("a frame's header has a wrong checksum");
  }
  return encoded.fields;
}

uint64_t FrameLayout(std::span<const size_t> part_bytes) {
  static_assert(sizeof(size_t) == sizeof(uint64_t));
  return XXH3_64bits(part_bytes.data(), part_bytes.size_bytes());
}

uint64_t FrameChecksum(const RingParts& parts) {
  if (parts.size() == 1) return XXH3_64bits(parts[0].data, parts[0].bytes);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  ANNULUS_CHECK(state != nullptr) << "no memory for a checksum's state";
  XXH3_64bits_reset(state.get());
  for (size_t i = 0; i < parts.size(); ++i) {
    XXH3_64bits_update(state.get(), parts[i].data, parts[i].bytes);
  }
  return XXH3_64bits_digest(state.get());
}

}  // namespace annulus
