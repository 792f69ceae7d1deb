#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_PARSER_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_PARSER_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/template/language/ast.h"
#include "engine/text/template/language/lexer.h"

namespace annulus::jinja {

// How deep tags, and expressions, may be nested. Bounds the stack used by parsing and, together
// with RenderLimits::depth, by evaluation.
inline constexpr int kMaxNesting = 60;

// A recursive descent parser with jinja2's grammar and precedences. A Failure has the line.
class Parser {
 public:
  Parser(std::vector<Token> tokens, Ast& ast) : tokens_(std::move(tokens)), ast_(ast) {}

  // Parses the whole template into the Ast.
  void Parse();

 private:
  using Body = std::vector<const Statement*>;

  // tokens
  const Token& current() const { return tokens_[position_]; }
  const Token& next() const;
  bool AtOperator(absl::string_view text) const;
  bool AtName(absl::string_view text) const;
  bool SkipOperator(absl::string_view text);
  bool SkipName(absl::string_view text);
  void ExpectOperator(absl::string_view text);
  std::string ExpectName();
  [[noreturn]] void Unexpected(absl::string_view expected) const;

  // statements (parse_statements.cc)
  // Parses up to the first tag that begins with one of `ends`, which becomes the current token.
  Body ParseBody(const std::vector<absl::string_view>& ends);
  // Parses from a tag's end to its end tag, which it skips.
  Body ParseTagBody(absl::string_view end);
  void EndBlock();
  const Statement* ParseTag();
  const Statement* ParseFor();
  const Statement* ParseIf();
  const Statement* ParseSet();
  const Statement* ParseWith();
  const Statement* ParseMacro();
  const Statement* ParseCallBlock();
  const Statement* ParseFilterBlock();
  const Statement* ParseGeneration();
  const Statement* ParseLoopControl(StatementType type);
  void ParseParameters(Statement& statement);
  Target ParseTarget(bool with_attribute);
  Target ParseTargetPart(bool with_attribute);
  Statement& NewStatement(StatementType type, int line);

  // expressions (parse_expressions.cc)
  using Node = const Expression*;
  Node ParseTuple(bool conditional, bool in_parentheses = false);
  bool AtTupleEnd() const;
  Node ParseExpression(bool conditional = true);
  Node ParseConditional();
  Node ParseOr();
  Node ParseAnd();
  Node ParseNot();
  Node ParseCompare();
  // Binary operators from `level` up: 0 + and -, 1 ~, 2 * / // %, 3 **.
  Node ParseArithmetic(int level);
  Node ParseUnary(bool with_filters = true);
  Node ParsePrimary();
  Node ParseConstant(const Value& value);
  Node ParseList();
  Node ParseDict();
  Node ParsePostfix(Node node);
  Node ParseFilters(Node node);
  Node ParseSubscript(Node node);
  Node ParseCall(Node node);
  // Parses a filter after `|`. `node` is null for block filters, which apply to the block's body.
  Node ParseFilter(Node node);
  Node ParseTest(Node node);
  CallArguments ParseArguments();
  Expression& NewExpression(ExpressionType type, int line);
  // Sets the expression's height; fails if it is too large.
  Node Finish(Expression& expression);

  // Counts open constructs during its lifetime.
  class Nesting {
   public:
    explicit Nesting(Parser& parser);
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  const std::vector<Token> tokens_;
  Ast& ast_;
  size_t position_ = 0;
  int nesting_ = 0;
  int loops_ = 0;  // open loops in the innermost macro or separate block
};

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_PARSER_H_
