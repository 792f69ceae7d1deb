#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_JSON_TREE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_JSON_TREE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"

namespace annulus {

// A JSON value that keeps the order of members and the digits of numbers.
struct JsonTree {
  enum class Kind : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

  struct Members {
    std::vector<std::string> keys;  // in the text's order; the values are `items`
    absl::flat_hash_map<std::string, size_t> places;
  };

  Kind kind = Kind::kNull;
  std::string text;                  // of a string, unescaped; of a number, as it was written
  std::vector<JsonTree> items;       // elements or member values
  std::unique_ptr<Members> members;  // of an object
  const JsonTree* parent = nullptr;  // by LinkParents

  bool is_object() const { return kind == Kind::kObject; }
  bool is_array() const { return kind == Kind::kArray; }
  bool is_string() const { return kind == Kind::kString; }
  bool is_boolean() const { return kind == Kind::kFalse || kind == Kind::kTrue; }

  // Sets `parent` of all values below this one, which must not move any more.
  void LinkParents();

  // Null if this is no object or has no such member.
  const JsonTree* Find(absl::string_view key) const;
};

// Parses one JSON text of at most kMaxJsonDepth levels, without duplicate keys. INVALID_ARGUMENT
// for anything else, with a message that begins with `name`; errors of `work` and
// `memory` unchanged. Asks `memory` for the tree, and what reading takes, before it grows; *bytes
// is what it asked for. Counts steps for each value.
absl::StatusOr<JsonTree> ParseOrderedJson(absl::string_view text, absl::string_view name,
                                          WorkMeter* work, MemoryGrant* memory, size_t* bytes);

// The value as compact JSON. Equal values give equal texts: numbers are written in full where 60
// digits suffice, members are sorted if `sorted`.
std::string CompactJson(const JsonTree& value, bool sorted);

// A string as JSON, in the shortest form.
std::string JsonQuoted(absl::string_view text);

// A number in its shortest form without an exponent, or as written if that is too long.
std::string CanonicalNumber(absl::string_view number);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_JSON_TREE_H_
