#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_AST_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_AST_H_

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/template/runtime.h"
#include "engine/text/template/value.h"

// A parsed template. Immutable after parsing.

namespace annulus::jinja {

enum class ExpressionType : uint8_t {
  kConstant,
  kName,        // name
  kList,        // children
  kTuple,       // children
  kDict,        // children: key, value, key, value ..
  kAttribute,   // children[0].name
  kSubscript,   // children[0][children[1]]
  kSlice,       // children[0][children[1]:children[2]:children[3]], null if omitted
  kCall,        // children[0](call)
  kFilter,      // children[0] | name(call), builtin
  kTest,        // children[0] is name(call), builtin
  kNot,         // children[0]
  kNegative,    // children[0]
  kPositive,    // children[0]
  kBinary,      // children[0] name children[1]: + - * / // % **
  kConcat,      // children joined by ~
  kCompare,     // children[0] operators[0] children[1] operators[1] children[2] ..
  kAnd,         // children[0], children[1]
  kOr,          // children[0], children[1]
  kConditional  // children[1] if children[0] else children[2], null if omitted
};

struct Expression;

struct CallArguments {
  std::vector<const Expression*> positional;
  std::vector<std::pair<std::string, const Expression*>> keywords;
  const Expression* rest = nullptr;           // *rest
  const Expression* rest_keywords = nullptr;  // **rest_keywords
};

struct Expression {
  ExpressionType type = ExpressionType::kConstant;
  int line = 1;
  int height = 1;  // nesting depth of expressions, including this one
  std::string name;
  Value constant;
  std::vector<const Expression*> children;
  std::vector<std::string> operators;
  CallArguments call;
  Builtin builtin = nullptr;  // null: unknown name, an error only when it is evaluated
};

enum class StatementType : uint8_t {
  kText,         // text
  kPrint,        // expressions[0]
  kFor,          // for target in expressions[0] if expressions[1] (may be null): body, else: other
  kIf,           // expressions[0]: body, else: other
  kSet,          // target = expressions[0]
  kSetBlock,     // target = body, through the filter expressions[0] (may be null)
  kWith,         // targets = expressions: body
  kMacro,        // name(parameters): body
  kCallBlock,    // call(parameters) expressions[0] (a kCall): body
  kFilterBlock,  // the filter expressions[0] over body
  kScope,        // body in a new scope
  kBreak,
  kContinue
};

// Where an assignment stores a value: a name, an attribute of a namespace, or several of these.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;  // a tuple if `is_tuple`
  bool is_tuple = false;
};

struct Statement {
  StatementType type = StatementType::kText;
  int line = 1;
  std::string name;
  std::string text;
  std::vector<const Expression*> expressions;
  std::vector<Target> targets;
  std::vector<const Statement*> body;
  std::vector<const Statement*> other;
  // For macros and call blocks; defaults[i] is the parameter's default or null.
  std::vector<std::string> parameters;
  std::vector<const Expression*> defaults;
};

struct Ast {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::deque<std::string> strings;  // of string constants
  std::vector<const Statement*> body;
};

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_AST_H_
