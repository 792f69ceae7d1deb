#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_ANSWER_PROSE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_ANSWER_PROSE_H_

#include <string>
#include <vector>

#include "engine/grammar/compiler/machine_builder.h"

namespace annulus {

// A mark that ends free text, as AnswerParser finds it there.
struct ProseMark {
  std::string bytes;    // its text, or the spelling of its token
  bool token = false;   // the token is the mark wherever it stands
  bool line = false;    // as AnswerExit::kLine
  bool start = false;   // as AnswerExit::kStart
  NodeId target = 0;    // what follows it
  bool begins = false;  // one byte that `target` reads itself
};

struct ProseKind {
  bool may_end = false;  // the whole may end inside the text
  bool thinks = false;   // the text is reasoning: Node::thinks
};

// Adds what reads any text of any tokens up to a mark, whose target then goes on. Marks of text
// must not begin each other.
NodeId EmitProse(std::vector<ProseMark> marks, const ProseKind& kind, MachineBuilder* builder);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_ANSWER_PROSE_H_
