#ifndef ANNULUS_ENGINE_GGUF_GGUF_FAMILIES_H_
#define ANNULUS_ENGINE_GGUF_GGUF_FAMILIES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_file.h"

namespace annulus {

// How a GGUF architecture differs from the Hugging Face checkpoint it was converted from. Sources:
// the tables of names in the `gguf` package, and the tensor changes made by llama.cpp's converter.
struct GgufFamily {
  enum class Experts {
    kNone,
    kSeparate,
    kQwen2,
    kGlm4,
    kOlmoe,
    kMixtral,
    kMiniMax,
    kGptOss,
    kGemma4
  };
  // The names of tensors that differ from those of most architectures.
  enum class Names { kUsual, kGemma, kGemma3n, kGemma4, kGlm4, kHunyuan, kStableLm, kStarcoder2 };

  absl::string_view name;          // general.architecture
  absl::string_view architecture;  // of config.json
  Experts experts = Experts::kNone;
  Names names = Names::kUsual;
  // The converter made neighbours of the rows of query and key projections that rope pairs; in the
  // checkpoint, row i of a head pairs with row i + head_dim / 2.
  bool interleaved_rope = false;
  bool gemma = false;        // norms hold 1 + w
  bool fused_block = false;  // gate and up in one tensor
  bool multipliers = false;  // Granite's scales
};

// Finds the file's family. UNIMPLEMENTED: an unsupported architecture, with the supported ones.
// INVALID_ARGUMENT: general.architecture is missing.
absl::StatusOr<GgufFamily> FindGgufFamily(const GgufFile& file);

// Writes a config.json with the same meaning as the metadata, to be checked by ParseModelConfig.
// Copies values as they are and leaves out absent ones. Some facts are not in the metadata and come
// from the tensors: vocabulary size, biases, a separate head, rope factors.
absl::StatusOr<std::string> GgufConfigJson(const GgufFile& file, const GgufFamily& family);

// The tensors that GgufConfigJson reads values from: factors of rope frequencies, which every
// checkpoint other than GGUF has in its config.json.
std::vector<absl::string_view> GgufConfigTensors(const GgufFile& file);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_FAMILIES_H_
