#ifndef ANNULUS_ENGINE_RING_WIRE_UCX_ADDRESS_H_
#define ANNULUS_ENGINE_RING_WIRE_UCX_ADDRESS_H_

#include <ucp/api/ucp.h>
#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

// UCX reads an address as far as it says that it is long: bytes that are none must not get there.
// So addresses travel with their size and a checksum.

namespace annulus {

// What precedes the bytes of an address.
struct AddressHead {
  uint64_t bytes = 0;     // of what follows
  uint64_t checksum = 0;  // XXH3 of it
};

// The bytes of a worker's address as peers pass them on.
inline std::string PackAddress(const void* address, size_t bytes) {
  const AddressHead head{bytes, XXH3_64bits(address, bytes)};
  std::string packed(sizeof(head) + bytes, '\0');
  std::memcpy(packed.data(), &head, sizeof(head));
  std::memcpy(packed.data() + sizeof(head), address, bytes);
  return packed;
}

// The address inside; null if there is none.
inline const ucp_address_t* UnpackAddress(const std::string& packed) {
  AddressHead head;
  if (packed.size() <= sizeof(head)) return nullptr;
  std::memcpy(&head, packed.data(), sizeof(head));
  const char* const address = packed.data() + sizeof(head);
  const size_t bytes = packed.size() - sizeof(head);
  if (head.bytes != bytes || head.checksum != XXH3_64bits(address, bytes)) return nullptr;
  return reinterpret_cast<const ucp_address_t*>(address);
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_WIRE_UCX_ADDRESS_H_
