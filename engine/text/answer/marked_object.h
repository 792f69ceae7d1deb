#ifndef ANNULUS_ENGINE_TEXT_ANSWER_MARKED_OBJECT_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_MARKED_OBJECT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace annulus {

// Reads the arguments of a call as Gemma 4 writes them, and writes them as a JSON object, byte by
// byte: names stand without quotes, and texts, as they are, between two marks that the caller
// recognises, such as {city:"Oslo",days:[1,2],where:{exact:true}} with such marks in place of
// quotes. White space between the parts is skipped. Takes constant time for a byte, and memory for
// the depth and for one name or number. Not thread-safe.
class MarkedObject {
 public:
  static constexpr size_t kMostWord = 256;  // bytes of a name, and of a value that is no text
  static constexpr int kMostDepth = 256;    // of objects and arrays inside each other

  enum class Result : uint8_t {
    kMore,  // the object goes on
    kEnd,   // the byte ended it
    kBad,   // no object goes on so; it cannot be used any more
  };
  struct Piece {
    Result result = Result::kMore;
    std::string json;  // what to append to the arguments
  };

  // Takes the next byte; the first must be a brace.
  Piece Push(char c);
  // Takes the mark of a text.
  Piece PushMark();

  bool begun() const { return state_ != State::kBegin; }
  // Whether the next byte is inside a text, where everything but the mark is text.
  bool in_text() const { return state_ == State::kText || state_ == State::kMarkedName; }

 private:
  enum class State : uint8_t {
    kBegin,
    kFirstName,   // or the end of the object
    kName,        // before a name or inside of it
    kMarkedName,  // between marks
    kColon,
    kFirstValue,  // or the end of the array
    kValue,
    kText,
    kWord,  // a number, true, false, null
    kAfterValue,
  };

  Piece Open(bool object);
  Piece Close(char c, std::string json);
  Piece EndName(const std::string& json);
  Piece PushName(char c);
  Piece PushValue(char c);
  Piece PushAfterValue(char c, std::string json);

  State state_ = State::kBegin;
  std::vector<bool> objects_;  // for each that is open: an object or an array
  std::string word_;           // a name or a value so far
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_MARKED_OBJECT_H_
