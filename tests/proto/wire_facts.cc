#include "tests/proto/wire_facts.h"

#include <google/protobuf/descriptor.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace annulus::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

std::string KindOf(const FieldDescriptor& field) {
  std::string kind = field.type_name();
  if (field.message_type() != nullptr) kind = field.message_type()->full_name();
  if (field.enum_type() != nullptr) kind = field.enum_type()->full_name();
  if (field.is_repeated()) kind = absl::StrCat(field.is_packed() ? "packed " : "repeated ", kind);
  if (field.has_optional_keyword()) kind = absl::StrCat("optional ", kind);
  if (const auto* oneof = field.real_containing_oneof()) {
    absl::StrAppend(&kind, ", one of ", oneof->name());
  }
  return kind;
}

void AddEnum(const EnumDescriptor& type, std::set<std::string>& facts) {
  for (int i = 0; i < type.value_count(); ++i) {
    facts.insert(
        absl::StrCat(type.full_name(), " ", type.value(i)->name(), " = ", type.value(i)->number()));
  }
}

void AddMessage(const Descriptor& type, std::set<std::string>& facts) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    facts.insert(absl::StrCat(type.full_name(), " ", field.name(), " = ", field.number(), ": ",
                              KindOf(field)));
  }
  for (int i = 0; i < type.nested_type_count(); ++i) AddMessage(*type.nested_type(i), facts);
  for (int i = 0; i < type.enum_type_count(); ++i) AddEnum(*type.enum_type(i), facts);
}

void AddFile(const FileDescriptor& file, std::set<std::string>& facts) {
  for (int i = 0; i < file.message_type_count(); ++i) AddMessage(*file.message_type(i), facts);
  for (int i = 0; i < file.enum_type_count(); ++i) AddEnum(*file.enum_type(i), facts);
  for (int i = 0; i < file.service_count(); ++i) {
    for (int m = 0; m < file.service(i)->method_count(); ++m) {
      const auto& method = *file.service(i)->method(m);
      facts.insert(absl::StrCat(method.full_name(), "(", method.client_streaming() ? "stream " : "",
                                method.input_type()->full_name(),
                                "): ", method.server_streaming() ? "stream " : "",
                                method.output_type()->full_name()));
    }
  }
}

}  // namespace

std::set<std::string> WireFacts(const google::protobuf::FileDescriptorSet& set) {
  google::protobuf::DescriptorPool pool;
  std::set<std::string> facts;
  for (const auto& file : set.file()) {
    const FileDescriptor* const built = pool.BuildFile(file);
    if (built == nullptr) return {};
    AddFile(*built, facts);
  }
  return facts;
}

}  // namespace annulus::testing
