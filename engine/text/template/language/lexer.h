#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LEXER_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LEXER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace annulus::jinja {

enum class TokenType : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,  // which one is in `text`
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;  // for strings without quotes and escapes
  int64_t integer = 0;
  double number = 0;

  bool Is(TokenType wanted, absl::string_view wanted_text) const {
    return type == wanted && text == wanted_text;
  }
};

// Splits a template into tokens, with kEnd last. White space around tags is stripped as in jinja2
// with trim_blocks and lstrip_blocks: the line end after a block and the blanks before it are
// removed, `-` removes all white space on its side, `+` keeps it. Line ends become "\n", and a
// final one is removed. A Failure has the line.
std::vector<Token> Tokenize(absl::string_view source);

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LANGUAGE_LEXER_H_
