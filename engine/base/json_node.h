#ifndef ANNULUS_ENGINE_BASE_JSON_NODE_H_
#define ANNULUS_ENGINE_BASE_JSON_NODE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// A value of a JSON file together with its place in the file, so that every error names the file,
// the key, the value and what is allowed. Reads are typed: a value of another type is
// INVALID_ARGUMENT.
//
// A node points into its JsonDocument, which must outlive it. Copying is cheap.
class JsonNode {
 public:
  JsonNode(const nlohmann::json* value, const std::string* file, std::string path);

  bool is_null() const;  // also true for a member that is absent
  bool is_string() const;
  bool is_object() const;
  bool is_array() const;

  // Return member `key` of an object. If it is absent, Find returns a null node, Require an error.
  absl::StatusOr<JsonNode> Find(absl::string_view key) const;
  absl::StatusOr<JsonNode> Require(absl::string_view key) const;

  absl::StatusOr<absl::string_view> String() const;
  absl::StatusOr<int64_t> Integer(int64_t minimum, int64_t maximum) const;
  absl::StatusOr<double> Number() const;

  // Read members of an object; `fallback` if they are absent or null.
  absl::StatusOr<std::string> StringMember(absl::string_view key, absl::string_view fallback) const;
  absl::StatusOr<bool> BoolMember(absl::string_view key, bool fallback) const;

  // Call `each` for the elements of an array or the members of an object; stop at an error.
  absl::Status ForEachElement(absl::FunctionRef<absl::Status(const JsonNode&)> each) const;
  absl::Status ForEachMember(
      absl::FunctionRef<absl::Status(absl::string_view, const JsonNode&)> each) const;

  // INVALID_ARGUMENT "<file>: <path>: <message>".
  absl::Status Error(absl::string_view message) const;
  // UNIMPLEMENTED: `given` is not one of `supported`; `what` names the kind of thing.
  absl::Status Unsupported(absl::string_view what, absl::string_view given,
                           std::initializer_list<absl::string_view> supported) const;

 private:
  absl::Status NotAllowed(absl::string_view allowed) const;

  const nlohmann::json* value_;  // null pointer: absent
  const std::string* file_;
  std::string path_;
};

// A JSON file, parsed by ParseJsonTree.
class JsonDocument {
 public:
  // `file_name` is used in messages only.
  static absl::StatusOr<JsonDocument> Parse(absl::string_view text, absl::string_view file_name);

  JsonDocument(JsonDocument&&) noexcept;
  JsonDocument& operator=(JsonDocument&&) noexcept;
  ~JsonDocument();

  JsonNode root() const;

 private:
  JsonDocument(nlohmann::json value, absl::string_view file_name);

  std::unique_ptr<const nlohmann::json> value_;
  std::unique_ptr<const std::string> file_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_JSON_NODE_H_
