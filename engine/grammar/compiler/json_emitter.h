#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_JSON_EMITTER_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_JSON_EMITTER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/grammar/compiler/character_class.h"
#include "engine/grammar/compiler/json_tree.h"
#include "engine/grammar/compiler/machine_builder.h"

namespace annulus {

// Most blanks after a line break between tokens of JSON.
inline constexpr uint32_t kMaxIndent = 64;

// How a model writes JSON.
struct JsonForm {
  std::string quote = "\"";    // what begins and ends a text, as a machine spells it
  bool escapes = true;         // texts are in JSON's escapes; else every character stands as it is
  bool quote_is_text = false;  // without escapes: the quote is characters, so texts have no '<'
  bool bare_names = false;     // names of members have no quotes, where they may stand so
};

// Members of an object, in the order in which they may come.
struct EmittedMember {
  absl::string_view name;
  RuleId value = 0;
  bool required = false;
};

// Members whose names only have to begin with `prefix`; the longest prefix decides.
struct EmittedNames {
  absl::string_view prefix;
  RuleId value = 0;
  bool allowed = true;
};

// Adds the parts of JSON to a machine. Between tokens (but not before a comma or a colon) there may
// be nothing, one blank, or a line break and at most kMaxIndent blanks and tabs: all that programs
// print, but no endless white space.
class JsonEmitter {
 public:
  // `builder` must outlive the emitter.
  explicit JsonEmitter(MachineBuilder* builder, JsonForm form = {});

  const JsonForm& form() const { return form_; }

  // Any value; any object.
  RuleId AnyValue();
  NodeId AnyObject(NodeId next);

  NodeId WhiteSpace(NodeId next);
  NodeId Number(bool whole, NodeId next);
  // A string of so many characters, each in any spelling.
  NodeId String(uint32_t least, uint32_t most, NodeId next);
  NodeId Quote(NodeId next);
  // A value, literally, but for white space.
  NodeId Constant(const JsonTree& value, NodeId next);
  // `item` is called by `prefix`, one after the other, then as often as the counts allow; `rest` is
  // empty if nothing may follow.
  NodeId Array(const std::vector<RuleId>& prefix, std::optional<RuleId> rest, uint32_t least,
               uint32_t most, NodeId next);
  // Members in order, then any number of others: `others` has the empty prefix, at least.
  NodeId Object(const std::vector<EmittedMember>& members, std::vector<EmittedNames> others,
                NodeId next);

 private:
  struct NameTrie;

  // One character of a string, in any spelling.
  NodeId FreeCharacter();
  NodeId StringRest(NodeId next);  // characters and the closing quote
  NodeId BareRest(NodeId next);
  NodeId Name(absl::string_view name, NodeId next);
  NodeId Close(char bracket, NodeId next);
  NodeId Colon(NodeId next);
  // Names that are not `members`', each followed by its value and then `next`.
  NodeId OtherNames(const std::vector<EmittedMember>& members,
                    const std::vector<EmittedNames>& others, NodeId next);

  // The characters of names that stand without quotes.
  const CharacterClass& BareCharacters();

  MachineBuilder& builder_;
  const JsonForm form_;
  std::optional<NodeId> free_character_;
  std::optional<RuleId> any_value_;
  std::map<NodeId, NodeId> white_space_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_JSON_EMITTER_H_
