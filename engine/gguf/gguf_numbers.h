#ifndef ANNULUS_ENGINE_GGUF_GGUF_NUMBERS_H_
#define ANNULUS_ENGINE_GGUF_GGUF_NUMBERS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_file.h"

namespace annulus {

// A whole number that is not negative, or null if the file has no such key. INVALID_ARGUMENT:
// something else; names file, key and value.
absl::StatusOr<nlohmann::json> GgufWholeNumber(const GgufFile& file, absl::string_view key);

// A finite number, or null if the file has no such key. Errors as above.
absl::StatusOr<nlohmann::json> GgufNumber(const GgufFile& file, absl::string_view key);

// One for each of `layers`, from an array of so many or from one number that all have. Empty if the
// file has no such key. Errors as above.
absl::StatusOr<std::vector<uint64_t>> GgufNumbersByLayer(const GgufFile& file,
                                                         absl::string_view key, uint64_t layers);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_NUMBERS_H_
