#include "engine/base/json_fields.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/base/json_parser.h"

namespace annulus {

const nlohmann::json* JsonFields::Find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

JsonFields JsonFields::Inside(absl::string_view key, const nlohmann::json& object) const {
  return {file_name_, absl::StrCat(prefix_, prefix_.empty() ? "" : ".", key), object};
}

absl::StatusOr<int64_t> JsonFields::Integer(const char* key, int64_t least, int64_t most,
                                            std::optional<int64_t> fallback) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  const std::string allowed = absl::StrCat("a whole number from ", least, " to ", most);
  if (value == nullptr || !value->is_number_integer()) return Invalid(key, allowed);
  if (value->is_number_unsigned() &&
      value->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Invalid(key, allowed);
  }
  const int64_t number = value->get<int64_t>();
  if (number < least || number > most) return Invalid(key, allowed);
  return number;
}

absl::StatusOr<double> JsonFields::Number(const char* key, double least, double most,
                                          std::optional<double> fallback) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr && fallback) return *fallback;
  const std::string allowed = absl::StrCat("a number from ", least, " to ", most);
  if (value == nullptr || !value->is_number()) return Invalid(key, allowed);
  const double number = value->get<double>();
  if (!(number >= least && number <= most)) return Invalid(key, allowed);
  return number;
}

absl::StatusOr<std::vector<double>> JsonFields::Numbers(const char* key, size_t count, bool or_more,
                                                        double least, double most) const {
  const nlohmann::json* value = Find(key);
  const std::string allowed = absl::StrCat("a list of ", or_more ? "at least " : "", count,
                                           " numbers from ", least, " to ", most);
  if (value == nullptr || !value->is_array() || value->size() < count ||
      (value->size() > count && !or_more)) {
    return Invalid(key, allowed);
  }
  std::vector<double> numbers;
  for (const nlohmann::json& item : *value) {
    if (!item.is_number()) return Invalid(key, allowed);
    const double number = item.get<double>();
    if (!(number >= least && number <= most)) return Invalid(key, allowed);
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<bool> JsonFields::Boolean(const char* key, bool fallback) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return Invalid(key, "true or false");
  return value->get<bool>();
}

absl::StatusOr<std::string> JsonFields::String(const char* key, absl::string_view fallback) const {
  const nlohmann::json* value = Find(key);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) return Invalid(key, "a string");
  return value->get<std::string>();
}

absl::Status JsonFields::Invalid(const char* key, absl::string_view allowed) const {
  return absl::InvalidArgumentError(Describe(key, allowed));
}

absl::Status JsonFields::Unsupported(const char* key, absl::string_view supported) const {
  return absl::UnimplementedError(Describe(key, supported));
}

std::string JsonFields::Describe(const char* key, absl::string_view allowed) const {
  return DescribeJson(file_name_, absl::StrCat(prefix_, prefix_.empty() ? "" : ".", key), Find(key),
                      allowed);
}

}  // namespace annulus
