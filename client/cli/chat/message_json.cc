#include "client/cli/chat/message_json.h"

#include <google/protobuf/util/json_util.h>

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using MemberJson = nlohmann::ordered_json;

MemberJson ObjectOf(const Descriptor& type, MemberJson printed, AbsentField absent);

// One value, as protobuf printed it, of a field that may be repeated.
MemberJson ValueOf(const FieldDescriptor& field, MemberJson printed, AbsentField absent) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t value = 0;
      return absl::SimpleAtoi(printed.get_ref<const std::string&>(), &value) ? value : 0;
    }
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:  // "NaN" and "Infinity" are strings
      return printed.is_number() ? MemberJson(printed.get<double>()) : MemberJson();
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*field.enum_type(), printed.get<int>());
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ObjectOf(*field.message_type(), std::move(printed), absent);
    default:
      return printed;
  }
}

MemberJson FieldOf(const FieldDescriptor& field, MemberJson printed, AbsentField absent) {
  if (field.is_map()) {
    std::map<std::string, MemberJson> sorted;
    for (const auto& entry : printed.items()) {
      sorted[entry.key()] =
          ValueOf(*field.message_type()->map_value(), std::move(entry.value()), absent);
    }
    return sorted;
  }
  if (!field.is_repeated()) return ValueOf(field, std::move(printed), absent);
  for (MemberJson& value : printed) value = ValueOf(field, std::move(value), absent);
  return printed;
}

// The printer leaves out fields that have their defaults. It has an option to print them, which
// takes hundreds of bytes for every number of a list, and such a list may be all tokens of a book.
MemberJson DefaultOf(const FieldDescriptor& field) {
  if (field.is_map()) return MemberJson::object();
  if (field.is_repeated()) return MemberJson::array();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return "";
    case FieldDescriptor::CPPTYPE_BOOL:
      return false;
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumText(*field.enum_type(), 0);
    case FieldDescriptor::CPPTYPE_UINT64:
      return "0";
    default:
      return 0;
  }
}

MemberJson ObjectOf(const Descriptor& type, MemberJson printed, AbsentField absent) {
  MemberJson object = MemberJson::object();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const auto found = printed.find(field.name());
    if (found != printed.end()) {
      object[field.name()] = FieldOf(field, std::move(*found), absent);
    } else if (!field.has_presence()) {
      object[field.name()] = DefaultOf(field);
    } else if (absent == AbsentField::kNull && field.has_optional_keyword()) {
      object[field.name()] = nullptr;
    }
  }
  return object;
}

}  // namespace

nlohmann::ordered_json MessageJson(const google::protobuf::Message& message, AbsentField absent) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_enums_as_ints = true;
  std::string text;
  // Fails only for messages that hold an Any, or are nested deeper than those of proto/.
  static_cast<void>(google::protobuf::util::MessageToJsonString(message, &text, options));
  return ObjectOf(*message.GetDescriptor(), MemberJson::parse(text), absent);
}

std::string EnumText(const google::protobuf::EnumDescriptor& type, int value) {
  // By the lint rules of the .proto files, the first value is PREFIX_UNSPECIFIED = 0.
  const absl::string_view prefix = absl::StripSuffix(type.value(0)->name(), "UNSPECIFIED");
  const google::protobuf::EnumValueDescriptor* const found = type.FindValueByNumber(value);
  if (found == nullptr || found->number() == 0) return "unknown";
  return absl::AsciiStrToLower(absl::StripPrefix(found->name(), prefix));
}

void InsertAfter(const std::string& before, const std::string& key, nlohmann::ordered_json value,
                 nlohmann::ordered_json& object) {
  MemberJson all = MemberJson::object();
  for (const auto& entry : object.items()) {
    all[entry.key()] = std::move(entry.value());
    if (entry.key() == before) all[key] = std::move(value);
  }
  object = std::move(all);
}

void WriteJson(const nlohmann::ordered_json& value, JsonWriter& json) {
  switch (value.type()) {
    case MemberJson::value_t::object:
      json.BeginObject();
      WriteMembers(value, json);
      json.EndObject();
      return;
    case MemberJson::value_t::array:
      json.BeginArray();
      for (const MemberJson& element : value) WriteJson(element, json);
      json.EndArray();
      return;
    case MemberJson::value_t::string:
      json.String(value.get_ref<const std::string&>());
      return;
    case MemberJson::value_t::boolean:
      json.Bool(value.get<bool>());
      return;
    case MemberJson::value_t::number_integer:
    case MemberJson::value_t::number_unsigned:
      json.Int(value.get<int64_t>());
      return;
    case MemberJson::value_t::number_float:
      json.Double(value.get<double>());
      return;
    default:
      json.Null();
  }
}

void WriteMembers(const nlohmann::ordered_json& object, JsonWriter& json) {
  for (const auto& entry : object.items()) WriteJson(entry.value(), json.Key(entry.key()));
}

std::string JsonLine(const nlohmann::ordered_json& value) {
  JsonWriter json;
  WriteJson(value, json);
  return absl::StrCat(json.text(), "\n");
}

}  // namespace annulus::client
