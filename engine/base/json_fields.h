#ifndef ANNULUS_ENGINE_BASE_JSON_FIELDS_H_
#define ANNULUS_ENGINE_BASE_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Reads typed, bounded values of one JSON object. Every error is INVALID_ARGUMENT (or as stated)
// with the file, the key, the value given and what is allowed. A key that holds null counts as
// absent, as in the Python library that writes these files. Keeps a reference to the object.
class JsonFields {
 public:
  // `prefix`: where the object is inside the file, "" or for example "rope_scaling".
  JsonFields(std::string file_name, std::string prefix, const nlohmann::json& object)
      : file_name_(std::move(file_name)), prefix_(std::move(prefix)), object_(object) {}

  // The value, or null if the key is absent.
  const nlohmann::json* Find(const char* key) const;
  bool Has(const char* key) const { return Find(key) != nullptr; }
  // Returns a reader of `object`, which is the value of `key`, or takes its place if it is absent.
  JsonFields Inside(absl::string_view key, const nlohmann::json& object) const;
  // Also true if the key holds null.
  bool Contains(const char* key) const { return object_.contains(key); }

  // Reads a whole number in [least, most]. If absent: `fallback`, or an error if that is empty.
  absl::StatusOr<int64_t> Integer(const char* key, int64_t least, int64_t most,
                                  std::optional<int64_t> fallback = std::nullopt) const;

  // Reads a number in [least, most], never NaN. If absent: as for Integer.
  absl::StatusOr<double> Number(const char* key, double least, double most,
                                std::optional<double> fallback = std::nullopt) const;

  // Reads a list of `count` numbers (with `or_more`: at least `count`), each in [least, most]. An
  // error if absent.
  absl::StatusOr<std::vector<double>> Numbers(const char* key, size_t count, bool or_more,
                                              double least, double most) const;

  absl::StatusOr<bool> Boolean(const char* key, bool fallback) const;
  absl::StatusOr<std::string> String(const char* key, absl::string_view fallback) const;

  // INVALID_ARGUMENT "FILE: KEY is VALUE; allowed: ALLOWED", or "FILE: KEY is missing; ..." if it
  // is absent.
  absl::Status Invalid(const char* key, absl::string_view allowed) const;
  // The same words as UNIMPLEMENTED: well-formed, but nothing that this program serves.
  absl::Status Unsupported(const char* key, absl::string_view supported) const;

 private:
  std::string Describe(const char* key, absl::string_view allowed) const;

  std::string file_name_;
  std::string prefix_;
  const nlohmann::json& object_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_JSON_FIELDS_H_
