// The JSON header of a safetensors file, for a file of any length: the first 8 bytes say which.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/string_view.h"
#include "engine/model/files/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  uint64_t bytes = 0;
  if (size < sizeof(bytes)) return 0;
  std::memcpy(&bytes, data, sizeof(bytes));
  const absl::string_view json(reinterpret_cast<const char*>(data) + sizeof(bytes),
                               size - sizeof(bytes));
  const auto tensors = annulus::ParseSafetensorsHeader(json, bytes, "fuzz.safetensors");
  if (!tensors.ok()) return 0;
  // What was accepted lies inside the file.
  for (const annulus::StoredTensor& tensor : *tensors) {
    if (tensor.begin > tensor.end || tensor.end > bytes) abort();
  }
  return 0;
}
