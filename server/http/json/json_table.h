#ifndef ANNULUS_SERVER_HTTP_JSON_JSON_TABLE_H_
#define ANNULUS_SERVER_HTTP_JSON_JSON_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/http/json/json_reader.h"

namespace annulus::server {

// A field of a request in JSON.
template <typename Body>
struct JsonField {
  absl::string_view path;  // see JsonForm
  uint8_t kinds;           // of JsonValue::Kind, joined; kText: captures arrays and objects
  // Stores the value; null: nothing to store.
  absl::Status (*set)(Body& body, const JsonValue& value) = nullptr;
  bool skip = false;  // takes any value, and leaves it out
  size_t value_bytes = 96;
  size_t text_factor = 1;
};

// A form that is a table of fields. Null stands for a field that is not given, if it may have other
// values than an array's or an object's.
template <typename Body>
class JsonTable final : public JsonForm {
 public:
  // `fields` must outlive the table.
  JsonTable(const std::vector<JsonField<Body>>& fields, Body& body)
      : fields_(fields), body_(body) {}

  const Rule* Find(absl::string_view path, JsonValue::Kind kind) const override {
    const JsonField<Body>* const field = FieldOf(path);
    if (field == nullptr) return nullptr;
    rule_ = {field->skip ? JsonUse::kSkip : JsonUse::kTake, field->value_bytes, field->text_factor};
    if (field->skip || (field->kinds & kind) != 0) return &rule_;
    if (kind == JsonValue::kNull) {
      rule_.use = JsonUse::kSkip;
      return &rule_;
    }
    const bool captures = (field->kinds & JsonValue::kText) != 0;
    if (!captures || (kind != JsonValue::kArray && kind != JsonValue::kObject)) return nullptr;
    rule_.use = JsonUse::kCapture;
    return &rule_;
  }
  std::string Reason(absl::string_view path, JsonValue::Kind) const override {
    const JsonField<Body>* const field = FieldOf(path);
    if (field == nullptr) {
      return "this server does not support this field; leave it out";
    }
    std::string names;
    for (const auto& [kind, name] : kNames) {
      if ((field->kinds & kind) != 0) absl::StrAppend(&names, names.empty() ? "" : " or ", name);
    }
    return absl::StrCat("must be ", names);
  }
  absl::Status Take(absl::string_view path, const JsonValue& value) override {
    const JsonField<Body>& field = *FieldOf(path);
    return field.set == nullptr ? absl::OkStatus() : field.set(body_, value);
  }

 private:
  struct KindName {
    JsonValue::Kind kind;
    const char* name;
  };
  static constexpr KindName kNames[] = {
      {JsonValue::kBool, "true or false"}, {JsonValue::kNumber, "a number"},
      {JsonValue::kString, "a string"},    {JsonValue::kArray, "an array"},
      {JsonValue::kObject, "an object"},   {JsonValue::kText, "an array or an object"}};

  const JsonField<Body>* FieldOf(absl::string_view path) const {
    for (const JsonField<Body>& field : fields_) {
      if (field.path == path) return &field;
    }
    // "logit_bias.17" is "logit_bias.*".
    const size_t dot = path.rfind('.');
    if (dot == absl::string_view::npos) return nullptr;
    for (const JsonField<Body>& field : fields_) {
      if (field.path.size() == dot + 2 && field.path.back() == '*' &&
          path.substr(0, dot + 1) == field.path.substr(0, dot + 1)) {
        return &field;
      }
    }
    return nullptr;
  }

  const std::vector<JsonField<Body>>& fields_;
  Body& body_;
  mutable Rule rule_{};  // what Find returned last
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_JSON_JSON_TABLE_H_
