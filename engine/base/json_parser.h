#ifndef ANNULUS_ENGINE_BASE_JSON_PARSER_H_
#define ANNULUS_ENGINE_BASE_JSON_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Quotes text from a file for a message: escaped, and cut to a readable length.
std::string QuoteForMessage(absl::string_view text);

// Quotes any value in the same way, as JSON in ASCII. Visits only the part of it that is shown.
std::string QuoteJson(const nlohmann::json& value);

// Returns "FILE: PLACE is VALUE; allowed: ALLOWED", or "is missing" if `value` is null. `place` is
// the path of the value inside the file.
std::string DescribeJson(absl::string_view file_name, absl::string_view place,
                         const nlohmann::json* value, absl::string_view allowed);

// Base of handlers that receive the events of parsing a JSON text. Each method returns false to
// stop the parse; `return Fail(reason)` does so with a reason.
class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  const absl::Status& status() const { return status_; }

  bool binary(nlohmann::json::binary_t&) final { return Fail("holds binary data"); }
  bool parse_error(size_t position, const std::string& last_token,
                   const nlohmann::json::exception& error) final;

 protected:
  // The path of the value that is being read, for messages: "" at the top, else for example
  // "rope_scaling.factor".
  virtual std::string Where() const = 0;

  // Records "<where> <reason>" once and returns false.
  bool Fail(absl::string_view reason);

 private:
  absl::Status status_;
};

// Feeds `text` to `handler`: one JSON value in UTF-8, with nothing after it but white space. A byte
// order mark, a NUL byte, invalid UTF-8, an unpaired surrogate, a number beyond the range of a
// double, a NaN or Infinity literal, and any value that the handler refuses are INVALID_ARGUMENT;
// messages begin with `file_name`. Stack use does not grow with the text's nesting.
absl::Status ParseJson(absl::string_view text, absl::string_view file_name, JsonHandler& handler);

inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = size_t{8} << 20;

// Which numbers a text may have.
enum class JsonNumbers : uint8_t {
  kStandard,
  kPython,  // also NaN, Infinity and -Infinity, as Python's json module writes them
};

// Parses the text into a tree of at most kMaxJsonDepth levels and kMaxJsonValues values, without
// duplicate keys (compared after unescaping). INVALID_ARGUMENT at the first breach of a limit. With
// kPython, numbers of the tree may be NaN or infinite: readers must refuse what they compute with
// (JsonFields does).
absl::StatusOr<nlohmann::json> ParseJsonTree(absl::string_view text, absl::string_view file_name,
                                             JsonNumbers numbers = JsonNumbers::kStandard);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_JSON_PARSER_H_
