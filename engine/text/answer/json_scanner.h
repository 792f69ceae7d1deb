#ifndef ANNULUS_ENGINE_TEXT_ANSWER_JSON_SCANNER_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_JSON_SCANNER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace annulus {

// White space between JSON's tokens.
inline bool IsJsonSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Checks one JSON value (RFC 8259) byte by byte and finds its end. Takes constant time for a byte,
// and memory for its depth alone. Any bytes from 0x80 on are accepted in strings. Not thread-safe.
class JsonScanner {
 public:
  static constexpr int kMostDepth = 256;  // of objects and arrays inside each other

  enum class Result : uint8_t {
    kMore,  // the object goes on
    kEnd,   // the byte ended it
    kBad,   // no JSON goes on so, or it is nested too deep; the scanner cannot be used any more
  };
  // For an object, which begins with the first byte, or for any value behind any white space, whose
  // end only an object or array shows.
  JsonScanner() = default;
  static JsonScanner OfValue() {
    JsonScanner scanner;
    scanner.state_ = State::kValue;
    return scanner;
  }

  // Takes the next byte.
  Result Push(char c);

  // Whether a byte was taken.
  bool begun() const { return state_ != State::kBegin; }
  // Objects and arrays that are open.
  int depth() const { return static_cast<int>(objects_.size()); }
  // Whether the next byte is inside a string.
  bool in_string() const { return state_ == State::kString || state_ == State::kEscape; }
  // Whether that byte belongs to what a backslash begins there.
  bool in_escape() const { return state_ == State::kEscape; }
  // Whether that string is the name of a member.
  bool in_key() const { return in_string() && key_; }
  // Whether a value begins with the next byte that is not white space.
  bool expects_value() const { return state_ == State::kValue; }
  // Whether a value is complete, and a comma or a closing bracket follows.
  bool after_value() const { return state_ == State::kAfterValue; }

 private:
  enum class State : uint8_t {
    kBegin,
    kValue,
    kFirstValue,  // or the end of the array
    kKey,
    kFirstKey,  // or the end of the object
    kColon,
    kString,
    kEscape,   // also within the four digits of \u
    kLiteral,  // true, false, null
    kNumber,
    kAfterValue,
  };
  enum class Digits : uint8_t { kMinus, kZero, kInteger, kPoint, kFraction, kE, kSign, kExponent };

  Result Open(bool object);
  Result Close(bool object);
  Result PushValue(char c);
  Result PushString(char c);
  Result PushNumber(char c);
  Result PushAfterValue(char c);

  State state_ = State::kBegin;
  std::vector<bool> objects_;  // for each that is open: an object or an array
  bool key_ = false;           // the string is the name of a member
  int hex_left_ = 0;           // digits of \u still to come
  const char* literal_ = "";   // what is left of the literal
  Digits digits_ = Digits::kMinus;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_JSON_SCANNER_H_
