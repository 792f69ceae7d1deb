#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/parser.h"

namespace annulus::jinja {
namespace {

constexpr absl::string_view kTags =
    "for, if, set, with, macro, call, filter, generation, print, raw, break and continue";

std::string Describe(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kData:
      return "text";
    case TokenType::kString:
      return "a string";
    default:
      return absl::StrCat("'", token.text, "'");
  }
}

}  // namespace

Parser::Nesting::Nesting(Parser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    --parser_.nesting_;
    FailAt(parser_.current().line, "more than ", kMaxNesting,
           " tags and brackets lie inside each other");
  }
}

const Token& Parser::next() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }

bool Parser::AtOperator(absl::string_view text) const {
  return current().Is(TokenType::kOperator, text);
}

bool Parser::AtName(absl::string_view text) const { return current().Is(TokenType::kName, text); }

bool Parser::SkipOperator(absl::string_view text) {
  if (!AtOperator(text)) return false;
  ++position_;
  return true;
}

bool Parser::SkipName(absl::string_view text) {
  if (!AtName(text)) return false;
  ++position_;
  return true;
}

void Parser::ExpectOperator(absl::string_view text) {
  if (!SkipOperator(text)) Unexpected(absl::StrCat("'", text, "'"));
}

std::string Parser::ExpectName() {
  if (current().type != TokenType::kName) Unexpected("a name");
  return tokens_[position_++].text;
}

void Parser::Unexpected(absl::string_view expected) const {
  FailAt(current().line, "expected ", expected, ", found ", Describe(current()));
}

Statement& Parser::NewStatement(StatementType type, int line) {
  Statement& statement = ast_.statements.emplace_back();
  statement.type = type;
  statement.line = line;
  return statement;
}

void Parser::EndBlock() {
  if (current().type != TokenType::kBlockEnd) Unexpected("the end of the tag");
  ++position_;
}

void Parser::Parse() { ast_.body = ParseBody({}); }

Parser::Body Parser::ParseBody(const std::vector<absl::string_view>& ends) {
  const Nesting nesting(*this);
  Body body;
  for (;;) {
    const Token& token = current();
    switch (token.type) {
      case TokenType::kEnd:
        if (ends.empty()) return body;
        FailAt(token.line, "the template ends where '", absl::StrJoin(ends, "' or '"),
               "' is expected");
      case TokenType::kData: {
        Statement& text = NewStatement(StatementType::kText, token.line);
        text.text = token.text;
        body.push_back(&text);
        ++position_;
        break;
      }
      case TokenType::kVariableBegin: {
        Statement& print = NewStatement(StatementType::kPrint, token.line);
        ++position_;
        print.expressions = {ParseTuple(/*conditional=*/true)};
        if (current().type != TokenType::kVariableEnd) Unexpected("'}}'");
        ++position_;
        body.push_back(&print);
        break;
      }
      default: {  // only tags are left between the others
        ++position_;
        const bool at_end = current().type == TokenType::kName &&
                            std::find(ends.begin(), ends.end(), current().text) != ends.end();
        if (at_end) return body;
        body.push_back(ParseTag());
        EndBlock();
      }
    }
  }
}

Parser::Body Parser::ParseTagBody(absl::string_view end) {
  SkipOperator(":");
  EndBlock();
  Body body = ParseBody({end});
  ++position_;
  return body;
}

const Statement* Parser::ParseTag() {
  if (current().type != TokenType::kName) Unexpected("the name of a tag");
  const std::string& tag = current().text;
  if (tag == "for") return ParseFor();
  if (tag == "if") return ParseIf();
  if (tag == "set") return ParseSet();
  if (tag == "with") return ParseWith();
  if (tag == "macro") return ParseMacro();
  if (tag == "call") return ParseCallBlock();
  if (tag == "filter") return ParseFilterBlock();
  if (tag == "generation") return ParseGeneration();
  if (tag == "break") return ParseLoopControl(StatementType::kBreak);
  if (tag == "continue") return ParseLoopControl(StatementType::kContinue);
  if (tag == "print") {
    Statement& print = NewStatement(StatementType::kPrint, tokens_[position_++].line);
    print.expressions = {ParseTuple(/*conditional=*/true)};
    return &print;
  }
  if (absl::StartsWith(tag, "end") || tag == "else" || tag == "elif") {
    FailAt(current().line, "'", tag, "' has no tag that it could belong to");
  }
  FailAt(current().line, "the tag '", tag, "' is not supported; supported are ", kTags);
}

Target Parser::ParseTargetPart(bool with_attribute) {
  if (SkipOperator("(")) {
    Target target = ParseTarget(with_attribute);
    ExpectOperator(")");
    return target;
  }
  Target target;
  target.name = ExpectName();
  if (with_attribute && SkipOperator(".")) target.attribute = ExpectName();
  for (const absl::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (target.name == constant) FailAt(current().line, "'", constant, "' cannot be assigned to");
  }
  return target;
}

Target Parser::ParseTarget(bool with_attribute) {
  const Nesting nesting(*this);
  Target first = ParseTargetPart(with_attribute);
  if (!AtOperator(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.parts.push_back(std::move(first));
  while (SkipOperator(",")) {
    if (current().type != TokenType::kName && !AtOperator("(")) break;
    if (AtName("in")) break;
    tuple.parts.push_back(ParseTargetPart(with_attribute));
  }
  return tuple;
}

const Statement* Parser::ParseFor() {
  Statement& loop = NewStatement(StatementType::kFor, tokens_[position_++].line);
  loop.targets = {ParseTarget(/*with_attribute=*/false)};
  if (!SkipName("in")) Unexpected("'in'");
  const Expression* const elements = ParseTuple(/*conditional=*/false);
  const Expression* const condition = SkipName("if") ? ParseExpression() : nullptr;
  if (AtName("recursive")) FailAt(current().line, "recursive loops are not supported");
  loop.expressions = {elements, condition};
  SkipOperator(":");
  EndBlock();
  ++loops_;
  loop.body = ParseBody({"endfor", "else"});
  --loops_;
  if (tokens_[position_++].text == "else") loop.other = ParseTagBody("endfor");
  return &loop;
}

const Statement* Parser::ParseIf() {
  Statement* const first = &NewStatement(StatementType::kIf, current().line);
  Statement* branch = first;
  for (;;) {
    ++position_;
    branch->expressions = {ParseTuple(/*conditional=*/false)};
    SkipOperator(":");
    EndBlock();
    branch->body = ParseBody({"elif", "else", "endif"});
    if (!AtName("elif")) break;
    // Evaluated as a chain, without recursion: see Evaluator::ExecuteIf.
    Statement& other = NewStatement(StatementType::kIf, current().line);
    branch->other = {&other};
    branch = &other;
  }
  if (tokens_[position_++].text == "else") {
    Statement& scope = NewStatement(StatementType::kIf, current().line);
    scope.body = ParseTagBody("endif");
    branch->other = {&scope};
  }
  return first;
}

const Statement* Parser::ParseSet() {
  const int line = tokens_[position_++].line;
  Target target = ParseTarget(/*with_attribute=*/true);
  if (SkipOperator("=")) {
    Statement& set = NewStatement(StatementType::kSet, line);
    set.targets = {std::move(target)};
    set.expressions = {ParseTuple(/*conditional=*/true)};
    return &set;
  }
  Statement& set = NewStatement(StatementType::kSetBlock, line);
  set.targets = {std::move(target)};
  const Expression* filter = nullptr;
  while (SkipOperator("|")) filter = ParseFilter(filter);
  set.expressions = {filter};
  const int loops = std::exchange(loops_, 0);
  set.body = ParseTagBody("endset");
  loops_ = loops;
  return &set;
}

const Statement* Parser::ParseWith() {
  Statement& with = NewStatement(StatementType::kWith, tokens_[position_++].line);
  while (current().type != TokenType::kBlockEnd) {
    if (!with.targets.empty()) ExpectOperator(",");
    with.targets.push_back(ParseTargetPart(/*with_attribute=*/false));
    ExpectOperator("=");
    with.expressions.push_back(ParseExpression());
  }
  with.body = ParseTagBody("endwith");
  return &with;
}

void Parser::ParseParameters(Statement& statement) {
  ExpectOperator("(");
  while (!AtOperator(")")) {
    if (!statement.parameters.empty()) ExpectOperator(",");
    statement.parameters.push_back(ExpectName());
    const Expression* value = SkipOperator("=") ? ParseExpression() : nullptr;
    if (value == nullptr && !statement.defaults.empty() && statement.defaults.back() != nullptr) {
      FailAt(current().line, "a parameter without a default follows one with a default");
    }
    statement.defaults.push_back(value);
  }
  ExpectOperator(")");
}

const Statement* Parser::ParseMacro() {
  Statement& macro = NewStatement(StatementType::kMacro, tokens_[position_++].line);
  macro.name = ExpectName();
  ParseParameters(macro);
  const int loops = std::exchange(loops_, 0);
  macro.body = ParseTagBody("endmacro");
  loops_ = loops;
  return &macro;
}

const Statement* Parser::ParseCallBlock() {
  Statement& block = NewStatement(StatementType::kCallBlock, tokens_[position_++].line);
  block.name = "caller";
  if (AtOperator("(")) ParseParameters(block);
  const Expression* const call = ParseExpression();
  if (call->type != ExpressionType::kCall) FailAt(block.line, "'call' needs a call");
  block.expressions = {call};
  const int loops = std::exchange(loops_, 0);
  block.body = ParseTagBody("endcall");
  loops_ = loops;
  return &block;
}

const Statement* Parser::ParseFilterBlock() {
  Statement& block = NewStatement(StatementType::kFilterBlock, tokens_[position_++].line);
  const Expression* filter = ParseFilter(nullptr);
  while (SkipOperator("|")) filter = ParseFilter(filter);
  block.expressions = {filter};
  const int loops = std::exchange(loops_, 0);
  block.body = ParseTagBody("endfilter");
  loops_ = loops;
  return &block;
}

// With this tag Transformers marks text that the model is to learn; rendering just writes its body.
const Statement* Parser::ParseGeneration() {
  Statement& scope = NewStatement(StatementType::kScope, tokens_[position_++].line);
  const int loops = std::exchange(loops_, 0);
  scope.body = ParseTagBody("endgeneration");
  loops_ = loops;
  return &scope;
}

const Statement* Parser::ParseLoopControl(StatementType type) {
  const Token& token = tokens_[position_++];
  if (loops_ == 0) FailAt(token.line, "'", token.text, "' is outside a loop");
  return &NewStatement(type, token.line);
}

}  // namespace annulus::jinja
