#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_CALL_TOOLS_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_CALL_TOOLS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/api/output.h"
#include "engine/grammar/compiler/compile_meter.h"
#include "engine/grammar/compiler/json_tree.h"
#include "engine/grammar/compiler/machine_builder.h"
#include "engine/grammar/token_trie.h"

namespace annulus {

// An argument of a tool, for families that write each between tags.
struct CallParameter {
  std::string name;
  bool required = false;
  // Text, as AnswerTools::IsText says, and of these values alone if there are some. Else JSON that
  // `value` reads.
  bool is_text = false;
  std::vector<std::string> choices = {};
  RuleId value = 0;
};

// A tool that a call may name.
struct CallTool {
  std::string name;
  bool strict = false;
  RuleId arguments = 0;                   // reads an object: unless the family is tagged
  std::vector<CallParameter> parameters;  // if it is
  bool any_pairs = false;                 // if it is: of any names and texts, not of `parameters`
};

// Adds rules for the arguments of the tools that `shape` allows. `definitions`: shape.tools,
// parsed. A tool without parameters gets an empty object. In tagged families no keywords are
// supported that limit texts, but enum and const, or the object as a whole. INVALID_ARGUMENT, as an
// error of the field "messages.tools", for a schema that is not supported; but if the tool is not
// strict and no call is required, what it says of these arguments is left out. NOT_FOUND if there
// is no tool of shape.name. `tokens`: of the vocabulary, for marks that are tokens; null: there are
// none.
absl::StatusOr<std::vector<CallTool>> ReadCallTools(const JsonTree& definitions,
                                                    const AnswerShape& shape,
                                                    const TokenTrie* tokens, CompileMeter* meter,
                                                    MachineBuilder* builder);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_CALL_TOOLS_H_
