#ifndef ANNULUS_ENGINE_GRAMMAR_OUTPUT_CONSTRAINT_H_
#define ANNULUS_ENGINE_GRAMMAR_OUTPUT_CONSTRAINT_H_

#include <cstdint>
#include <string>
#include <vector>

namespace annulus {

// What an answer must look like.
struct OutputConstraint {
  enum class Kind : uint8_t {
    kJsonSchema,  // JSON that satisfies the schema `text`; see DETAILS.md for its keywords
    kJsonObject,  // any JSON object
    kRegex,       // matches the regular expression `text` as a whole; see regex_tree.h
    kChoices,     // is one of `choices`
  };
  Kind kind = Kind::kJsonObject;
  std::string text;
  std::vector<std::string> choices;

  bool operator==(const OutputConstraint&) const = default;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_OUTPUT_CONSTRAINT_H_
