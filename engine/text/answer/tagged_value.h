#ifndef ANNULUS_ENGINE_TEXT_ANSWER_TAGGED_VALUE_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_TAGGED_VALUE_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/text/answer/json_scanner.h"

namespace annulus {

// Writes arguments that a model gives as pairs of names and values, byte by byte, as a JSON object.
// A value is text, or (if its schema allows others) JSON; what is no JSON then is text too. Not
// thread-safe.
class TaggedArguments {
 public:
  static constexpr size_t kMostJson = size_t{1} << 20;  // bytes of a value that may be JSON

  // What to append to the arguments, and for how many bytes of the value that stands.
  struct Piece {
    std::string json;
    size_t source = 0;
  };

  // Begins the object.
  std::string Begin();
  // Begins a value. `trims`: a line feed at each end is no part of it.
  std::string BeginValue(absl::string_view key, bool is_text, bool trims);
  // Takes a byte of the value. `source` may be 0 (it is held back) or stand for earlier bytes too.
  Piece Push(char c);
  // Ends the value.
  Piece EndValue();

  // A mark that would end the value comes: whether it is inside a string of JSON, and so a part of
  // the value. Its bytes come next then.
  bool KeepsMark();
  // If a mark was kept and the value is no JSON so far, or it `ends` here and has no end: gives the
  // bytes from the first such mark on, which are none of the value then. Else an empty text.
  std::string TakeBack(bool ends);

  // Ends the object.
  static std::string End() { return "}"; }

  // Bytes of a value that Push has held back.
  const std::string& held() const { return held_; }

 private:
  bool first_pair_ = true;
  bool is_text_ = false;
  bool trims_ = false;
  bool empty_ = true;  // nothing of the value came yet
  // Of text: a line feed that may be the last byte. Of others: the whole value.
  std::string held_;
  // Of others: whether it has been the beginning of JSON so far, and where in it a mark was kept.
  bool is_json_ = false;
  JsonScanner scanner_;
  std::optional<size_t> kept_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_TAGGED_VALUE_H_
