#include "engine/disk/checksum.h"

#include <xxhash.h>

#include <cstring>
#include <memory>

#include "kernels/base/check.h"

namespace annulus {
namespace {

Checksum BytesOf(const XXH128_hash_t& hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Checksum sum;
  static_assert(sizeof(canonical) == sizeof(sum));
  std::memcpy(sum.data(), &canonical, sizeof(sum));
  return sum;
}

}  // namespace

Checksum ChecksumOf(std::span<const std::span<const std::byte>> parts) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  ANNULUS_CHECK(state != nullptr) << "no memory for a checksum's state";
  XXH3_128bits_reset(state.get());
  for (const auto& part : parts) XXH3_128bits_update(state.get(), part.data(), part.size());
  return BytesOf(XXH3_128bits_digest(state.get()));
}

Checksum ChecksumOf(std::span<const std::byte> bytes) {
  return BytesOf(XXH3_128bits(bytes.data(), bytes.size()));
}

}  // namespace annulus
