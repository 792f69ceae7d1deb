#ifndef ANNULUS_SERVER_HTTP_JSON_JSON_READER_H_
#define ANNULUS_SERVER_HTTP_JSON_JSON_READER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// A value in a JSON text, or the beginning of an array or object.
struct JsonValue {
  enum Kind : uint8_t {
    kNull = 1,
    kBool = 2,
    kNumber = 4,
    kString = 8,
    kArray = 16,
    kObject = 32,
    kText = 64,  // JSON text: what was captured
  };
  Kind kind;
  bool truth = false;                              // of kBool
  double number = 0;                               // of kNumber
  std::optional<int64_t> integer = std::nullopt;   // of kNumber, if it is a whole number that fits
  std::optional<uint64_t> natural = std::nullopt;  // of kNumber, likewise
  absl::string_view text = {};                     // of kString and kText
  std::string* buffer = nullptr;                   // of kString: holds `text`; see TakeText
  absl::string_view key = {};                      // the last key of its path
};

// The text of a value; without a copy if it is what the reader's buffer is as long as. `text` is
// not valid afterwards.
std::string TakeText(const JsonValue& value);

// What to do with a value.
enum class JsonUse : uint8_t {
  kTake,     // pass it on; of an array or object: also all in it
  kSkip,     // nothing
  kCapture,  // pass it on as kText once it is complete
};

// Knows which values a JSON text may have, and where they go. Paths are written
// "messages[].content": "[]" stands for any place in an array, ".*" for any key of an object.
class JsonForm {
 public:
  struct Rule {
    JsonUse use;
    // Upper bounds of the memory that taking a value takes: beside its text, and for each byte of
    // that.
    size_t value_bytes;
    size_t text_factor;
  };
  virtual ~JsonForm() = default;
  // Null if no such value may stand there.
  virtual const Rule* Find(absl::string_view path, JsonValue::Kind kind) const = 0;
  // Why Find gave null: a sentence about the field.
  virtual std::string Reason(absl::string_view path, JsonValue::Kind kind) const = 0;
  // Takes a value. INVALID_ARGUMENT refuses it, and all in it; other errors end the reading. The
  // reader names the field, unless the error does.
  virtual absl::Status Take(absl::string_view path, const JsonValue& value) = 0;
};

// Reads a JSON text, an object, as events into `form`. Before anything is allocated for it, the
// memory is held in `memory`: as kWork while this runs, and as kDecoded for what the form took.
//
// INVALID_ARGUMENT, with the field if there is one, if the text is not JSON, if it nests deeper
// than 64, if a key of an object comes twice, or if the form refuses values: all of them are named
// (JoinFieldErrors); errors of CallMemory::Hold; CANCELLED.
absl::Status ReadJson(const std::deque<std::string>& pieces, JsonForm& form, CallMemory& memory,
                      const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_JSON_JSON_READER_H_
