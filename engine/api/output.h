#ifndef ANNULUS_ENGINE_API_OUTPUT_H_
#define ANNULUS_ENGINE_API_OUTPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace annulus {

class AnswerFormat;  // engine/text/answer

// What an answer to a conversation holds beside its text, in the form that the model's family has.
struct AnswerShape {
  enum class Calls : uint8_t {
    kNone,      // nothing is a call
    kAllowed,   // what opens a call becomes one, with arguments as its tool's schema says
    kRequired,  // at least one call, and besides it nothing but reasoning
  };
  std::shared_ptr<const AnswerFormat> format;  // not null
  bool in_reasoning = false;                   // the prompt has opened a block of reasoning
  bool may_think = false;                      // the answer may open one
  // Most tokens of reasoning, and the ids of the mark that ends it. Absent: any number.
  std::optional<int32_t> reasoning_budget = {};
  std::vector<int32_t> reasoning_end = {};
  Calls calls = Calls::kNone;
  std::string tools = {};  // definitions as Messages.tools has them
  std::string name = {};   // the only one that may be called; empty: any

  bool operator==(const AnswerShape&) const = default;
};

// What an answer must look like.
struct OutputConstraint {
  enum class Kind : uint8_t {
    kJsonSchema,  // JSON that satisfies the schema `text`; see server/STRUCTURED.md
    kJsonObject,  // any JSON object
    kRegex,       // matches the regular expression `text` as a whole; see engine/grammar
    kChoices,     // is one of `choices`
    kAnyText,     // anything; only with `answer`
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  // Where the form begins: behind the reasoning, and unless the answer is a call. Absent: the form
  // is all of the answer.
  std::optional<AnswerShape> answer = {};

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
