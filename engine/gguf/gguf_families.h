#ifndef ANNULUS_ENGINE_GGUF_GGUF_FAMILIES_H_
#define ANNULUS_ENGINE_GGUF_GGUF_FAMILIES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_file.h"

namespace annulus {

// How a GGUF architecture differs from the Hugging Face checkpoint that it was made of. Sources:
// the tables of names in the `gguf` package, and what the llama.cpp project's converter does to
// tensors.
struct GgufFamily {
  enum class Experts { kNone, kSeparate, kMixtral, kGptOss };

  absl::string_view name;          // general.architecture
  absl::string_view architecture;  // of config.json
  Experts experts = Experts::kNone;
  // Rows of the query and key projections pair up neighbours for rope; here, as in Transformers,
  // row i of a head pairs with row i + head_dim / 2.
  bool interleaved_rope = false;
  bool gemma = false;  // norms hold 1 + w, and the norm before the gated block has another name
  bool fused = false;  // query, key and value in one tensor; gate and up in another
};

// The family of the file. UNIMPLEMENTED: an architecture that is not served, with those that are;
// INVALID_ARGUMENT: general.architecture is missing.
absl::StatusOr<GgufFamily> FindGgufFamily(const GgufFile& file);

// A config.json that says what the metadata say, for ParseModelConfig, which checks it all. Values
// are taken as they are; what is absent stays absent. Some facts are in no metadata and come from
// the tensors: the vocabulary, biases, a head of its own, rope factors.
absl::StatusOr<std::string> GgufConfigJson(const GgufFile& file, const GgufFamily& family);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_FAMILIES_H_
