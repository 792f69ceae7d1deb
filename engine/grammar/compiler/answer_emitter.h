#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_ANSWER_EMITTER_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_ANSWER_EMITTER_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/output.h"
#include "engine/grammar/compiler/answer_prose.h"
#include "engine/grammar/compiler/call_tools.h"
#include "engine/grammar/compiler/json_emitter.h"
#include "engine/grammar/compiler/machine_builder.h"
#include "engine/grammar/token_trie.h"
#include "engine/text/answer/answer_format.h"

namespace annulus {

// Turns the states of a family's answers (AnswerFamily) into rules of a machine, so that what it
// accepts is what AnswerParser reads as whole calls of the tools, with arguments that their rules
// read, and as a text of the wanted form.
class AnswerEmitter {
 public:
  // `tools` may be empty: nothing is a call. `form`: reads the text; absent: any text. `tokens`: of
  // the vocabulary, for marks that are tokens; null: there are none. All must outlive the emitter.
  AnswerEmitter(const AnswerShape& shape, const std::vector<CallTool>& tools,
                std::optional<RuleId> form, const TokenTrie* tokens, MachineBuilder* builder);

  // Returns where an answer begins.
  NodeId Emit();

 private:
  using Exit = AnswerFormat::Exit;
  using State = AnswerFormat::State;
  static constexpr int kNoTool = -1;

  // A state of the family, and what was read before it.
  struct Place {
    int state = 0;
    int tool = kNoTool;    // of the call whose name was read
    bool called = false;   // a call has ended
    bool thought = false;  // a block of reasoning has
    bool tight = false;    // a mark begins here, without white space before it
    auto operator<=>(const Place&) const = default;
  };

  NodeId At(const Place& place);
  NodeId After(int state, const Place& place);
  NodeId Called(int state) { return At({.state = state, .called = true}); }
  NodeId Body(const Place& place);

  // What each part of an answer reads.
  NodeId Text(const Place& place);
  NodeId Formed(const Place& place);
  NodeId Reasoning(const Place& place);
  NodeId Header(const Place& place);
  NodeId Space(const Place& place);
  NodeId Name(const Place& place);
  NodeId Id(const Place& place);
  NodeId Call(const Place& place);
  NodeId Pairs(const Place& place);
  NodeId AnyKey(NodeId next);
  NodeId Value(const CallParameter& parameter, const Exit& close, NodeId next);

  const State& StateOf(int index) const { return format_.state(index); }
  AnswerPart PartOf(const Exit& exit) const;
  bool required() const { return shape_.calls == AnswerShape::Calls::kRequired; }
  bool free() const { return !form_.has_value() && !required(); }
  // Whether the exit may be taken from a text or from reasoning.
  bool Enabled(const Exit& exit) const;

  NodeId Dead() { return builder_.Split({}); }
  NodeId Mark(const Exit& exit, NodeId next);
  // Where an exit leads, with its mark if that is no part of what comes.
  NodeId Through(const Exit& exit, NodeId next);
  std::vector<ProseMark> ProseMarks(const Place& place);
  NodeId Spaces(NodeId next);
  NodeId HeaderText(absl::string_view text, const State& state, NodeId next);
  NodeId Member(absl::string_view name, NodeId value);

  const AnswerShape& shape_;
  const AnswerFormat& format_;
  const std::vector<CallTool>& tools_;
  const std::optional<RuleId> form_;
  const TokenTrie* const tokens_;
  MachineBuilder& builder_;
  JsonEmitter json_;
  bool any_strict_ = false;
  std::map<Place, NodeId> nodes_;
  std::vector<std::pair<Place, RuleId>> pending_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_ANSWER_EMITTER_H_
