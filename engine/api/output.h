#ifndef ANNULUS_ENGINE_API_OUTPUT_H_
#define ANNULUS_ENGINE_API_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace annulus {

// What an answer must look like.
struct OutputConstraint {
  enum class Kind : uint8_t {
    kJsonSchema,  // JSON that satisfies the schema `text`; see server/STRUCTURED.md
    kJsonObject,  // any JSON object
    kRegex,       // matches the regular expression `text` as a whole; see engine/grammar
    kChoices,     // is one of `choices`
  };
  Kind kind = Kind::kJsonObject;
  std::string text;
  std::vector<std::string> choices;

  bool operator==(const OutputConstraint&) const = default;
};

struct Machine;  // engine/grammar/machine.h

// A constraint that Engine::CompileOutput has compiled. Immutable, so requests may share it.
struct CompiledOutput {
  std::shared_ptr<const Machine> machine;  // null: no constraint
  size_t bytes = 0;                        // heap bytes that a request with it takes, at most
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_OUTPUT_H_
