#include "engine/base/json_node.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json_parser.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Json = nlohmann::json;

absl::string_view View(const Json& value) { return value.get_ref<const std::string&>(); }

}  // namespace

JsonNode::JsonNode(const nlohmann::json* value, const std::string* file, std::string path)
    : value_(value), file_(file), path_(std::move(path)) {}

bool JsonNode::is_null() const { return value_ == nullptr || value_->is_null(); }
bool JsonNode::is_string() const { return value_ != nullptr && value_->is_string(); }
bool JsonNode::is_object() const { return value_ != nullptr && value_->is_object(); }
bool JsonNode::is_array() const { return value_ != nullptr && value_->is_array(); }

absl::Status JsonNode::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(
      absl::StrCat(*file_, ": ", path_.empty() ? "" : absl::StrCat(path_, ": "), message));
}

absl::Status JsonNode::Unsupported(absl::string_view what, absl::string_view given,
                                   std::initializer_list<absl::string_view> supported) const {
  return absl::UnimplementedError(
      absl::StrCat(*file_, ": ", path_, ": ", what, " \"", QuoteForMessage(given),
                   "\" is not supported; supported: ", absl::StrJoin(supported, ", ")));
}

absl::Status JsonNode::NotAllowed(absl::string_view allowed) const {
  return absl::InvalidArgumentError(DescribeJson(*file_, path_, value_, allowed));
}

absl::StatusOr<JsonNode> JsonNode::Find(absl::string_view key) const {
  if (!is_object()) return NotAllowed("an object");
  const auto member = value_->find(std::string(key));
  return JsonNode(member == value_->end() ? nullptr : &*member, file_,
                  absl::StrCat(path_, path_.empty() ? "" : ".", key));
}

absl::StatusOr<JsonNode> JsonNode::Require(absl::string_view key) const {
  ANNULUS_ASSIGN_OR_RETURN(JsonNode member, Find(key));
  if (member.is_null()) return member.NotAllowed("a value");
  return member;
}

absl::StatusOr<absl::string_view> JsonNode::String() const {
  if (!is_string()) return NotAllowed("a string");
  return View(*value_);
}

absl::StatusOr<int64_t> JsonNode::Integer(int64_t minimum, int64_t maximum) const {
  const auto beyond_64_bits = [this] {
    return value_->is_number_unsigned() &&
           value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  };
  if (value_ != nullptr && value_->is_number_integer() && !beyond_64_bits()) {
    const int64_t number = value_->get<int64_t>();
    if (number >= minimum && number <= maximum) return number;
  }
  return NotAllowed(absl::StrCat("a whole number from ", minimum, " to ", maximum));
}

absl::StatusOr<double> JsonNode::Number() const {
  if (value_ == nullptr || !value_->is_number()) return NotAllowed("a number");
  return value_->get<double>();
}

absl::StatusOr<std::string> JsonNode::StringMember(absl::string_view key,
                                                   absl::string_view fallback) const {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode member, Find(key));
  if (member.is_null()) return std::string(fallback);
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, member.String());
  return std::string(text);
}

absl::StatusOr<bool> JsonNode::BoolMember(absl::string_view key, bool fallback) const {
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode member, Find(key));
  if (member.is_null()) return fallback;
  if (!member.value_->is_boolean()) return member.NotAllowed("true or false");
  return member.value_->get<bool>();
}

absl::Status JsonNode::ForEachElement(absl::FunctionRef<absl::Status(const JsonNode&)> each) const {
  if (!is_array()) return NotAllowed("a list");
  size_t index = 0;
  for (const Json& element : *value_) {
    ANNULUS_RETURN_IF_ERROR(
        each(JsonNode(&element, file_, absl::StrCat(path_, "[", index++, "]"))));
  }
  return absl::OkStatus();
}

absl::Status JsonNode::ForEachMember(
    absl::FunctionRef<absl::Status(absl::string_view, const JsonNode&)> each) const {
  if (!is_object()) return NotAllowed("an object");
  for (const auto& [key, value] : value_->get_ref<const Json::object_t&>()) {
    ANNULUS_RETURN_IF_ERROR(each(
        key, JsonNode(&value, file_, absl::StrCat(path_, "[\"", QuoteForMessage(key), "\"]"))));
  }
  return absl::OkStatus();
}

JsonDocument::JsonDocument(nlohmann::json value, absl::string_view file_name)
    : value_(std::make_unique<const Json>(std::move(value))),
      file_(std::make_unique<const std::string>(file_name)) {}
JsonDocument::JsonDocument(JsonDocument&&) noexcept = default;
JsonDocument& JsonDocument::operator=(JsonDocument&&) noexcept = default;
JsonDocument::~JsonDocument() = default;

absl::StatusOr<JsonDocument> JsonDocument::Parse(absl::string_view text,
                                                 absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(Json value, ParseJsonTree(text, file_name));
  return JsonDocument(std::move(value), file_name);
}

JsonNode JsonDocument::root() const { return JsonNode(value_.get(), file_.get(), ""); }

}  // namespace annulus
