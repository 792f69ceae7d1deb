#include "engine/text/json_node.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Json = nlohmann::json;

// Builds the value as the parser reports it and stops the parser at the first breach of a limit,
// so that a hostile file costs no more than a large honest one.
class LimitedBuilder : public nlohmann::json_sax<Json> {
 public:
  Json TakeValue() { return std::move(root_); }
  const std::string& error() const { return error_; }

  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)); }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return Fail("binary values are not JSON"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& value) override {
    const auto [member, inserted] = open_.back()->emplace(value, nullptr);
    if (!inserted) return Fail(absl::StrCat("the key \"", value, "\" is given twice"));
    member_ = &*member;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception& error) override {
    return Fail(absl::StrCat("not valid JSON at byte ", position, ": ", error.what()));
  }

 private:
  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  bool Add(Json value) { return Place(std::move(value)) != nullptr; }

  bool Open(Json value) {
    if (open_.size() == kMaxJsonDepth) {
      return Fail(absl::StrCat("nested deeper than ", kMaxJsonDepth, " levels"));
    }
    Json* const place = Place(std::move(value));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  Json* Place(Json value) {
    if (++values_ > kMaxJsonValues) {
      Fail(absl::StrCat("more than ", kMaxJsonValues, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *member_ = std::move(value);
    return member_;
  }

  Json root_;
  std::vector<Json*> open_;  // containers not yet closed; each is the last child of the one before
  Json* member_ = nullptr;   // where the value of the key just read goes
  size_t values_ = 0;
  std::string error_;
};

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
      absl::StrCat(*file_, ": ", path_, ": ", what, " \"", TruncateUtf8(given, 80),
                   "\" is not supported; supported: ", absl::StrJoin(supported, ", ")));
}

absl::Status JsonNode::WrongType(absl::string_view expected) const {
  return Error(absl::StrCat("expected ", expected, ", got ",
                            value_ == nullptr ? "nothing" : value_->type_name()));
}

absl::StatusOr<JsonNode> JsonNode::Find(absl::string_view key) const {
  if (!is_object()) return WrongType("an object");
  const auto member = value_->find(std::string(key));
  return JsonNode(member == value_->end() ? nullptr : &*member, file_,
                  absl::StrCat(path_, path_.empty() ? "" : ".", key));
}

absl::StatusOr<JsonNode> JsonNode::Require(absl::string_view key) const {
  ANNULUS_ASSIGN_OR_RETURN(JsonNode member, Find(key));
  if (member.is_null()) return member.Error("missing");
  return member;
}

absl::StatusOr<absl::string_view> JsonNode::String() const {
  if (!is_string()) return WrongType("a string");
  return View(*value_);
}

absl::StatusOr<int64_t> JsonNode::Integer(int64_t minimum, int64_t maximum) const {
  if (value_ == nullptr || !value_->is_number_integer()) return WrongType("an integer");
  const bool too_large =
      value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  const int64_t number = too_large ? INT64_MAX : value_->get<int64_t>();
  if (too_large || number < minimum || number > maximum) {
    return Error(absl::StrCat(value_->dump(), " is outside ", minimum, "..", maximum));
  }
  return number;
}

absl::StatusOr<double> JsonNode::Number() const {
  if (value_ == nullptr || !value_->is_number()) return WrongType("a number");
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
  if (!member.value_->is_boolean()) return member.WrongType("true or false");
  return member.value_->get<bool>();
}

absl::Status JsonNode::ForEachElement(absl::FunctionRef<absl::Status(const JsonNode&)> each) const {
  if (!is_array()) return WrongType("an array");
  size_t index = 0;
  for (const Json& element : *value_) {
    ANNULUS_RETURN_IF_ERROR(
        each(JsonNode(&element, file_, absl::StrCat(path_, "[", index++, "]"))));
  }
  return absl::OkStatus();
}

absl::Status JsonNode::ForEachMember(
    absl::FunctionRef<absl::Status(absl::string_view, const JsonNode&)> each) const {
  if (!is_object()) return WrongType("an object");
  for (const auto& [key, value] : value_->get_ref<const Json::object_t&>()) {
    const absl::string_view shown = TruncateUtf8(key, 80);
    ANNULUS_RETURN_IF_ERROR(
        each(key, JsonNode(&value, file_, absl::StrCat(path_, "[\"", shown, "\"]"))));
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
  // The parser would take a NUL for the end of the text.
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": not valid JSON: a NUL at byte ", nul));
  }
  LimitedBuilder builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat(file_name, ": ", builder.error()));
  }
  return JsonDocument(builder.TakeValue(), file_name);
}

JsonNode JsonDocument::root() const { return JsonNode(value_.get(), file_.get(), ""); }

absl::StatusOr<std::string> ReadTextFile(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    return absl::NotFoundError(absl::StrCat(path.string(), ": no such file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": not a regular file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxTextFileBytes) {
    return absl::InvalidArgumentError(error ? absl::StrCat(path.string(), ": ", error.message())
                                            : absl::StrCat(path.string(), ": ", size,
                                                           " bytes; at most ", kMaxTextFileBytes,
                                                           " are read"));
  }
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) {
    return absl::InvalidArgumentError(absl::StrCat(path.string(), ": cannot be read"));
  }
  return text;
}

}  // namespace annulus
