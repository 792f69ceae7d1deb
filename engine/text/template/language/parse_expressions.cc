#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/parser.h"
#include "engine/text/template/library/filters.h"
#include "engine/text/template/library/value_tests.h"

namespace annulus::jinja {
namespace {

constexpr std::array<absl::string_view, 6> kComparisons = {"==", "!=", "<", "<=", ">", ">="};
constexpr int kConcatLevel = 1;
constexpr int kHighestLevel = 3;

bool IsOperatorOfLevel(absl::string_view text, int level) {
  switch (level) {
    case 0:
      return text == "+" || text == "-";
    case kConcatLevel:
      return text == "~";
    case 2:
      return text == "*" || text == "/" || text == "//" || text == "%";
    default:
      return text == "**";
  }
}

}  // namespace

Expression& Parser::NewExpression(ExpressionType type, int line) {
  Expression& expression = ast_.expressions.emplace_back();
  expression.type = type;
  expression.line = line;
  return expression;
}

Parser::Node Parser::Finish(Expression& expression) {
  int height = 0;
  const auto count = [&height](Node node) {
    if (node != nullptr) height = std::max(height, node->height);
  };
  for (const Node child : expression.children) count(child);
  for (const Node argument : expression.call.positional) count(argument);
  for (const auto& [name, argument] : expression.call.keywords) count(argument);
  count(expression.call.rest);
  count(expression.call.rest_keywords);
  expression.height = height + 1;
  if (expression.height > 2 * kMaxNesting) {
    FailAt(expression.line, "an expression has more than ", 2 * kMaxNesting,
           " parts inside each other");
  }
  return &expression;
}

bool Parser::AtTupleEnd() const {
  return current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd ||
         AtOperator(")") || AtName("recursive");
}

Parser::Node Parser::ParseTuple(bool conditional, bool in_parentheses) {
  const int line = current().line;
  std::vector<Node> items;
  bool is_tuple = false;
  while (!AtTupleEnd()) {
    items.push_back(ParseExpression(conditional));
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return items[0];
  if (items.empty() && !in_parentheses) Unexpected("an expression");
  Expression& tuple = NewExpression(ExpressionType::kTuple, line);
  tuple.children = std::move(items);
  return Finish(tuple);
}

Parser::Node Parser::ParseExpression(bool conditional) {
  const Nesting nesting(*this);
  return conditional ? ParseConditional() : ParseOr();
}

Parser::Node Parser::ParseConditional() {
  Node value = ParseOr();
  while (AtName("if")) {
    const int line = tokens_[position_++].line;
    const Node condition = ParseOr();
    const Node other = SkipName("else") ? ParseExpression() : nullptr;
    Expression& choice = NewExpression(ExpressionType::kConditional, line);
    choice.children = {condition, value, other};
    value = Finish(choice);
  }
  return value;
}

Parser::Node Parser::ParseOr() {
  Node left = ParseAnd();
  while (AtName("or")) {
    Expression& either = NewExpression(ExpressionType::kOr, tokens_[position_++].line);
    either.children = {left, ParseAnd()};
    left = Finish(either);
  }
  return left;
}

Parser::Node Parser::ParseAnd() {
  Node left = ParseNot();
  while (AtName("and")) {
    Expression& both = NewExpression(ExpressionType::kAnd, tokens_[position_++].line);
    both.children = {left, ParseNot()};
    left = Finish(both);
  }
  return left;
}

Parser::Node Parser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const Nesting nesting(*this);
  Expression& negation = NewExpression(ExpressionType::kNot, tokens_[position_++].line);
  negation.children = {ParseNot()};
  return Finish(negation);
}

Parser::Node Parser::ParseCompare() {
  const int line = current().line;
  const Node first = ParseArithmetic(0);
  std::vector<Node> operands = {first};
  std::vector<std::string> operators;
  for (;;) {
    const Token& token = current();
    if (token.type == TokenType::kOperator &&
        std::find(kComparisons.begin(), kComparisons.end(), token.text) != kComparisons.end()) {
      operators.push_back(token.text);
      ++position_;
    } else if (SkipName("in")) {
      operators.push_back("in");
    } else if (AtName("not") && next().Is(TokenType::kName, "in")) {
      operators.push_back("not in");
      position_ += 2;
    } else {
      break;
    }
    operands.push_back(ParseArithmetic(0));
  }
  if (operators.empty()) return first;
  Expression& comparison = NewExpression(ExpressionType::kCompare, line);
  comparison.children = std::move(operands);
  comparison.operators = std::move(operators);
  return Finish(comparison);
}

Parser::Node Parser::ParseArithmetic(int level) {
  const auto parse_operand = [&] {
    return level == kHighestLevel ? ParseUnary() : ParseArithmetic(level + 1);
  };
  Node left = parse_operand();
  Expression* concat = nullptr;
  while (current().type == TokenType::kOperator && IsOperatorOfLevel(current().text, level)) {
    const Token& token = tokens_[position_++];
    const Node right = parse_operand();
    if (level != kConcatLevel) {
      Expression& binary = NewExpression(ExpressionType::kBinary, token.line);
      binary.name = token.text;
      binary.children = {left, right};
      left = Finish(binary);
    } else if (concat == nullptr) {
      concat = &NewExpression(ExpressionType::kConcat, token.line);
      concat->children = {left, right};
    } else {
      concat->children.push_back(right);
    }
  }
  return concat == nullptr ? left : Finish(*concat);
}

Parser::Node Parser::ParseUnary(bool with_filters) {
  const Nesting nesting(*this);
  Node node = nullptr;
  if (AtOperator("-") || AtOperator("+")) {
    const Token& token = tokens_[position_++];
    Expression& sign = NewExpression(
        token.text == "-" ? ExpressionType::kNegative : ExpressionType::kPositive, token.line);
    sign.children = {ParseUnary(/*with_filters=*/false)};
    node = Finish(sign);
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(node);
  return with_filters ? ParseFilters(node) : node;
}

Parser::Node Parser::ParseConstant(const Value& value) {
  Expression& constant = NewExpression(ExpressionType::kConstant, current().line);
  constant.constant = value;
  ++position_;
  return &constant;
}

Parser::Node Parser::ParsePrimary() {
  const Token& token = current();
  switch (token.type) {
    case TokenType::kName: {
      if (token.text == "true" || token.text == "True") return ParseConstant(Value::Bool(true));
      if (token.text == "false" || token.text == "False") return ParseConstant(Value::Bool(false));
      if (token.text == "none" || token.text == "None") return ParseConstant(Value::None());
      Expression& name = NewExpression(ExpressionType::kName, token.line);
      name.name = token.text;
      ++position_;
      return &name;
    }
    case TokenType::kInt:
      return ParseConstant(Value::Int(token.integer));
    case TokenType::kFloat:
      return ParseConstant(Value::Float(token.number));
    case TokenType::kString: {
      std::string& text = ast_.strings.emplace_back(token.text);
      const Node node = ParseConstant(Value::String(&text));
      for (; current().type == TokenType::kString; ++position_) text += current().text;
      return node;
    }
    default:
      break;
  }
  if (AtOperator("[")) return ParseList();
  if (AtOperator("{")) return ParseDict();
  if (!SkipOperator("(")) Unexpected("an expression");
  const Node node = ParseTuple(/*conditional=*/true, /*in_parentheses=*/true);
  ExpectOperator(")");
  return node;
}

Parser::Node Parser::ParseList() {
  Expression& list = NewExpression(ExpressionType::kList, tokens_[position_++].line);
  while (!AtOperator("]")) {
    list.children.push_back(ParseExpression());
    if (!SkipOperator(",")) break;
  }
  ExpectOperator("]");
  return Finish(list);
}

Parser::Node Parser::ParseDict() {
  Expression& dict = NewExpression(ExpressionType::kDict, tokens_[position_++].line);
  while (!AtOperator("}")) {
    dict.children.push_back(ParseExpression());
    ExpectOperator(":");
    dict.children.push_back(ParseExpression());
    if (!SkipOperator(",")) break;
  }
  ExpectOperator("}");
  return Finish(dict);
}

Parser::Node Parser::ParsePostfix(Node node) {
  for (;;) {
    if (AtOperator(".") || AtOperator("[")) {
      node = ParseSubscript(node);
    } else if (AtOperator("(")) {
      node = ParseCall(node);
    } else {
      return node;
    }
  }
}

Parser::Node Parser::ParseFilters(Node node) {
  for (;;) {
    if (SkipOperator("|")) {
      node = ParseFilter(node);
    } else if (AtName("is")) {
      node = ParseTest(node);
    } else if (AtOperator("(")) {
      node = ParseCall(node);
    } else {
      return node;
    }
  }
}

Parser::Node Parser::ParseSubscript(Node node) {
  const int line = current().line;
  if (SkipOperator(".")) {
    if (current().type == TokenType::kInt) {
      Expression& item = NewExpression(ExpressionType::kSubscript, line);
      item.children = {node, ParseConstant(Value::Int(current().integer))};
      return Finish(item);
    }
    Expression& attribute = NewExpression(ExpressionType::kAttribute, line);
    attribute.name = ExpectName();
    attribute.children = {node};
    return Finish(attribute);
  }
  ExpectOperator("[");
  Expression& item = NewExpression(ExpressionType::kSubscript, line);
  item.children = {node, nullptr, nullptr, nullptr};
  size_t part = 1;
  for (; part < 4; ++part) {
    if (!AtOperator(":") && !AtOperator("]")) item.children[part] = ParseExpression();
    if (!SkipOperator(":")) break;
    item.type = ExpressionType::kSlice;
  }
  if (item.type == ExpressionType::kSubscript) {
    if (item.children[1] == nullptr) Unexpected("an expression");
    item.children.resize(2);
  }
  ExpectOperator("]");
  return Finish(item);
}

CallArguments Parser::ParseArguments() {
  CallArguments arguments;
  const int line = current().line;
  ExpectOperator("(");
  while (!AtOperator(")")) {
    const bool no_rest = arguments.rest == nullptr && arguments.rest_keywords == nullptr;
    bool allowed = true;
    if (SkipOperator("**")) {
      allowed = arguments.rest_keywords == nullptr;
      arguments.rest_keywords = ParseExpression();
    } else if (SkipOperator("*")) {
      allowed = no_rest;
      arguments.rest = ParseExpression();
    } else if (current().type == TokenType::kName && next().Is(TokenType::kOperator, "=")) {
      allowed = arguments.rest_keywords == nullptr;
      const std::string name = ExpectName();
      ++position_;
      arguments.keywords.emplace_back(name, ParseExpression());
    } else {
      allowed = no_rest && arguments.keywords.empty();
      arguments.positional.push_back(ParseExpression());
    }
    if (!allowed) FailAt(line, "the arguments of a call are in the wrong order");
    if (!SkipOperator(",")) break;
  }
  ExpectOperator(")");
  return arguments;
}

Parser::Node Parser::ParseCall(Node node) {
  Expression& call = NewExpression(ExpressionType::kCall, current().line);
  call.children = {node};
  call.call = ParseArguments();
  return Finish(call);
}

Parser::Node Parser::ParseFilter(Node node) {
  Expression& filter = NewExpression(ExpressionType::kFilter, current().line);
  filter.name = ExpectName();
  filter.builtin = FindFilter(filter.name);
  filter.children = {node};
  if (AtOperator("(")) filter.call = ParseArguments();
  return Finish(filter);
}

Parser::Node Parser::ParseTest(Node node) {
  Expression& test = NewExpression(ExpressionType::kTest, tokens_[position_++].line);
  const bool negated = SkipName("not");
  test.name = ExpectName();
  test.builtin = FindTest(test.name);
  test.children = {node};
  const Token& token = current();
  const bool value_begins = token.type == TokenType::kString || token.type == TokenType::kInt ||
                            token.type == TokenType::kFloat || AtOperator("[") || AtOperator("{");
  const bool name_begins = token.type == TokenType::kName && token.text != "else" &&
                           token.text != "or" && token.text != "and";
  if (AtOperator("(")) {
    test.call = ParseArguments();
  } else if (value_begins || name_begins) {
    if (AtName("is")) FailAt(token.line, "tests cannot be chained with 'is'");
    // As jinja2 has it: a value with its attributes and calls, without operators.
    test.call.positional = {ParsePostfix(ParsePrimary())};
  }
  const Node node_test = Finish(test);
  if (!negated) return node_test;
  Expression& negation = NewExpression(ExpressionType::kNot, test.line);
  negation.children = {node_test};
  return Finish(negation);
}

}  // namespace annulus::jinja
