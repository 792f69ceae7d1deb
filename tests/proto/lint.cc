#include "tests/proto/lint.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace annulus::testing {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::FileOptions;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::SourceLocation;

bool IsPascalCase(absl::string_view name) {
  return !name.empty() && absl::ascii_isupper(name[0]) &&
         std::all_of(name.begin(), name.end(), absl::ascii_isalnum);
}

bool IsSnakeCase(absl::string_view name, bool (*is_letter)(unsigned char)) {
  if (name.empty() || !is_letter(name[0]) || name.back() == '_') return false;
  if (absl::StrContains(name, "__")) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return c == '_' || absl::ascii_isdigit(c) || is_letter(c); });
}
bool IsLowerSnakeCase(absl::string_view name) { return IsSnakeCase(name, absl::ascii_islower); }
bool IsUpperSnakeCase(absl::string_view name) { return IsSnakeCase(name, absl::ascii_isupper); }

// "FinishReason" -> "FINISH_REASON".
std::string ToUpperSnakeCase(absl::string_view pascal) {
  std::string result;
  for (size_t i = 0; i < pascal.size(); ++i) {
    const bool starts_word = i > 0 && absl::ascii_isupper(pascal[i]) &&
                             (!absl::ascii_isupper(pascal[i - 1]) ||
                              (i + 1 < pascal.size() && absl::ascii_islower(pascal[i + 1])));
    if (starts_word) result += '_';
    result += absl::ascii_toupper(pascal[i]);
  }
  return result;
}

// "v1", "v1beta2", "v2alpha1", "v1test".
bool IsVersion(absl::string_view part) {
  if (!absl::ConsumePrefix(&part, "v") || part.empty() || !absl::ascii_isdigit(part[0])) {
    return false;
  }
  while (!part.empty() && absl::ascii_isdigit(part[0])) part.remove_prefix(1);
  if (part.empty() || part == "test") return true;
  if (!absl::ConsumePrefix(&part, "alpha") && !absl::ConsumePrefix(&part, "beta")) return false;
  return std::all_of(part.begin(), part.end(), absl::ascii_isdigit);
}

std::string DirectoryOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? "." : std::string(path.substr(0, slash));
}

// Collects what the descriptor pool finds wrong, which would else go to standard error.
class Errors : public DescriptorPool::ErrorCollector {
 public:
  void AddError(const std::string& file, const std::string& element,
                const google::protobuf::Message*, ErrorLocation,
                const std::string& message) override {
    lines_.push_back(absl::StrCat("UNRESOLVED ", file, ": ", element, ": ", message));
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

class Linter {
 public:
  explicit Linter(std::vector<std::string>& offences) : offences_(offences) {}

  void CheckFile(const FileDescriptor& file, const FileDescriptorProto& proto);
  void CheckPackages(const std::vector<const FileDescriptor*>& files);
  void CheckRpcTypesUnique(const std::vector<const FileDescriptor*>& files);

 private:
  void Offend(absl::string_view rule, absl::string_view where, absl::string_view what) {
    offences_.push_back(absl::StrCat(rule, " ", where, ": ", what));
  }
  void Require(bool holds, absl::string_view rule, const std::string& where,
               absl::string_view what) {
    if (!holds) Offend(rule, where, what);
  }
  template <typename D>
  void RequireComment(const D& descriptor, absl::string_view rule) {
    SourceLocation location;
    const bool present = descriptor.GetSourceLocation(&location) &&
                         !absl::StripAsciiWhitespace(location.leading_comments).empty();
    Require(present, rule, descriptor.full_name(), "needs a comment above it");
  }

  void CheckMessage(const Descriptor& message);
  void CheckEnum(const EnumDescriptor& type);
  void CheckService(const ServiceDescriptor& service);
  void CheckImports(const FileDescriptor& file, const FileDescriptorProto& proto);
  void CheckSameOption(const std::vector<const FileDescriptor*>& files, absl::string_view rule,
                       const std::function<std::string(const FileOptions&)>& option);

  std::vector<std::string>& offences_;
};

void Linter::CheckFile(const FileDescriptor& file, const FileDescriptorProto& proto) {
  const absl::string_view base(file.name().c_str() + file.name().rfind('/') + 1);
  Require(IsLowerSnakeCase(absl::StripSuffix(base, ".proto")), "FILE_LOWER_SNAKE_CASE", file.name(),
          "must be lower_snake_case.proto");
  Require(!proto.syntax().empty(), "SYNTAX_SPECIFIED", file.name(), "must say proto3");
  Require(!file.package().empty(), "PACKAGE_DEFINED", file.name(), "must have a package");
  const std::vector<std::string> parts = absl::StrSplit(file.package(), '.');
  Require(
      std::all_of(parts.begin(), parts.end(), [](const auto& p) { return IsLowerSnakeCase(p); }),
      "PACKAGE_LOWER_SNAKE_CASE", file.name(), "package must be lower_snake.case");
  Require(IsVersion(parts.back()), "PACKAGE_VERSION_SUFFIX", file.name(),
          "package must end in a version such as v1");
  Require(absl::StrReplaceAll(file.package(), {{".", "/"}}) == DirectoryOf(file.name()),
          "PACKAGE_DIRECTORY_MATCH", file.name(), "package must match the folder");
  CheckImports(file, proto);
  for (int i = 0; i < file.message_type_count(); ++i) CheckMessage(*file.message_type(i));
  for (int i = 0; i < file.enum_type_count(); ++i) CheckEnum(*file.enum_type(i));
  for (int i = 0; i < file.service_count(); ++i) CheckService(*file.service(i));
}

void CollectUsedFiles(const Descriptor& message, std::set<std::string>& used) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.message_type() != nullptr) used.insert(field.message_type()->file()->name());
    if (field.enum_type() != nullptr) used.insert(field.enum_type()->file()->name());
  }
  for (int i = 0; i < message.nested_type_count(); ++i) {
    CollectUsedFiles(*message.nested_type(i), used);
  }
}

void Linter::CheckImports(const FileDescriptor& file, const FileDescriptorProto& proto) {
  Require(proto.public_dependency_size() == 0, "IMPORT_NO_PUBLIC", file.name(),
          "must not import publicly");
  Require(proto.weak_dependency_size() == 0, "IMPORT_NO_WEAK", file.name(),
          "must not import weakly");
  std::set<std::string> used;
  for (int i = 0; i < file.message_type_count(); ++i) CollectUsedFiles(*file.message_type(i), used);
  for (int i = 0; i < file.service_count(); ++i) {
    for (int m = 0; m < file.service(i)->method_count(); ++m) {
      used.insert(file.service(i)->method(m)->input_type()->file()->name());
      used.insert(file.service(i)->method(m)->output_type()->file()->name());
    }
  }
  for (const std::string& import : proto.dependency()) {
    Require(used.contains(import), "IMPORT_USED", file.name(),
            absl::StrCat("does not use ", import));
  }
}

void Linter::CheckMessage(const Descriptor& message) {
  if (message.options().map_entry()) return;
  Require(IsPascalCase(message.name()), "MESSAGE_PASCAL_CASE", message.full_name(),
          "must be PascalCase");
  RequireComment(message, "COMMENT_MESSAGE");
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    Require(IsLowerSnakeCase(field.name()), "FIELD_LOWER_SNAKE_CASE", field.full_name(),
            "must be lower_snake_case");
    Require(!field.is_required(), "FIELD_NOT_REQUIRED", field.full_name(), "must not be required");
    RequireComment(field, "COMMENT_FIELD");
  }
  for (int i = 0; i < message.real_oneof_decl_count(); ++i) {
    const auto& oneof = *message.oneof_decl(i);
    Require(IsLowerSnakeCase(oneof.name()), "ONEOF_LOWER_SNAKE_CASE", oneof.full_name(),
            "must be lower_snake_case");
    RequireComment(oneof, "COMMENT_ONEOF");
  }
  for (int i = 0; i < message.nested_type_count(); ++i) CheckMessage(*message.nested_type(i));
  for (int i = 0; i < message.enum_type_count(); ++i) CheckEnum(*message.enum_type(i));
}

void Linter::CheckEnum(const EnumDescriptor& type) {
  Require(IsPascalCase(type.name()), "ENUM_PASCAL_CASE", type.full_name(), "must be PascalCase");
  Require(!type.options().allow_alias(), "ENUM_NO_ALLOW_ALIAS", type.full_name(),
          "must not allow aliases");
  RequireComment(type, "COMMENT_ENUM");
  const std::string prefix = absl::StrCat(ToUpperSnakeCase(type.name()), "_");
  for (int i = 0; i < type.value_count(); ++i) {
    const auto& value = *type.value(i);
    Require(IsUpperSnakeCase(value.name()), "ENUM_VALUE_UPPER_SNAKE_CASE", value.full_name(),
            "must be UPPER_SNAKE_CASE");
    Require(absl::StartsWith(value.name(), prefix), "ENUM_VALUE_PREFIX", value.full_name(),
            absl::StrCat("must begin with ", prefix));
    if (value.number() == 0) {
      Require(absl::EndsWith(value.name(), "_UNSPECIFIED"), "ENUM_ZERO_VALUE_SUFFIX",
              value.full_name(), "must end in _UNSPECIFIED");
    }
    RequireComment(value, "COMMENT_ENUM_VALUE");
  }
  Require(type.value(0)->number() == 0, "ENUM_FIRST_VALUE_ZERO", type.full_name(),
          "its first value must be 0");
}

void Linter::CheckService(const ServiceDescriptor& service) {
  Require(IsPascalCase(service.name()), "SERVICE_PASCAL_CASE", service.full_name(),
          "must be PascalCase");
  Require(absl::EndsWith(service.name(), "Service"), "SERVICE_SUFFIX", service.full_name(),
          "must end in Service");
  RequireComment(service, "COMMENT_SERVICE");
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& rpc = *service.method(i);
    const auto is_standard = [&](const std::string& type, absl::string_view suffix) {
      return type == absl::StrCat(rpc.name(), suffix) ||
             type == absl::StrCat(service.name(), rpc.name(), suffix);
    };
    Require(IsPascalCase(rpc.name()), "RPC_PASCAL_CASE", rpc.full_name(), "must be PascalCase");
    Require(is_standard(rpc.input_type()->name(), "Request"), "RPC_REQUEST_STANDARD_NAME",
            rpc.full_name(), absl::StrCat("its request must be ", rpc.name(), "Request"));
    Require(is_standard(rpc.output_type()->name(), "Response"), "RPC_RESPONSE_STANDARD_NAME",
            rpc.full_name(), absl::StrCat("its response must be ", rpc.name(), "Response"));
    RequireComment(rpc, "COMMENT_RPC");
  }
}

void Linter::CheckRpcTypesUnique(const std::vector<const FileDescriptor*>& files) {
  std::map<std::string, std::string> user;
  const auto use = [&](const Descriptor& type, const MethodDescriptor& rpc) {
    const auto [it, is_new] = user.emplace(type.full_name(), rpc.full_name());
    Require(is_new, "RPC_REQUEST_RESPONSE_UNIQUE", rpc.full_name(),
            absl::StrCat(type.full_name(), " is used by ", it->second, " already"));
  };
  for (const FileDescriptor* file : files) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const MethodDescriptor& rpc = *file->service(s)->method(m);
        use(*rpc.input_type(), rpc);
        use(*rpc.output_type(), rpc);
      }
    }
  }
}

void Linter::CheckSameOption(const std::vector<const FileDescriptor*>& files,
                             absl::string_view rule,
                             const std::function<std::string(const FileOptions&)>& option) {
  std::map<std::string, std::string> of_package;
  for (const FileDescriptor* file : files) {
    const auto [it, is_new] = of_package.emplace(file->package(), option(file->options()));
    Require(is_new || it->second == option(file->options()), rule, file->name(),
            "differs from another file of its package");
  }
}

void Linter::CheckPackages(const std::vector<const FileDescriptor*>& files) {
  std::map<std::string, std::string> directory_of, package_of;
  std::map<std::string, std::set<std::string>> imports;
  for (const FileDescriptor* file : files) {
    const std::string directory = DirectoryOf(file->name());
    const auto by_package = directory_of.emplace(file->package(), directory).first;
    Require(by_package->second == directory, "PACKAGE_SAME_DIRECTORY", file->name(),
            "all files of a package must be in one folder");
    const auto by_directory = package_of.emplace(directory, file->package()).first;
    Require(by_directory->second == file->package(), "DIRECTORY_SAME_PACKAGE", file->name(),
            "all files of a folder must have one package");
    for (int i = 0; i < file->dependency_count(); ++i) {
      const std::string& package = file->dependency(i)->package();
      if (package != file->package()) imports[file->package()].insert(package);
    }
  }
  for (const auto& [start, unused] : imports) {
    std::set<std::string> reached;
    std::vector<std::string> open = {start};
    while (!open.empty()) {
      const std::string package = open.back();
      open.pop_back();
      for (const std::string& next : imports[package]) {
        if (reached.insert(next).second) open.push_back(next);
      }
    }
    Require(!reached.contains(start), "PACKAGE_NO_IMPORT_CYCLE", start, "imports itself");
  }
  using O = FileOptions;
  CheckSameOption(files, "PACKAGE_SAME_CSHARP_NAMESPACE", &O::csharp_namespace);
  CheckSameOption(files, "PACKAGE_SAME_GO_PACKAGE", &O::go_package);
  CheckSameOption(files, "PACKAGE_SAME_JAVA_PACKAGE", &O::java_package);
  CheckSameOption(files, "PACKAGE_SAME_PHP_NAMESPACE", &O::php_namespace);
  CheckSameOption(files, "PACKAGE_SAME_RUBY_PACKAGE", &O::ruby_package);
  CheckSameOption(files, "PACKAGE_SAME_SWIFT_PREFIX", &O::swift_prefix);
  CheckSameOption(files, "PACKAGE_SAME_JAVA_MULTIPLE_FILES",
                  [](const O& options) { return absl::StrCat(options.java_multiple_files()); });
}

}  // namespace

std::vector<std::string> Lint(const FileDescriptorSet& set, absl::string_view own_prefix) {
  std::vector<std::string> offences;
  Linter linter(offences);
  DescriptorPool pool;
  std::vector<const FileDescriptor*> own;
  for (const FileDescriptorProto& proto : set.file()) {
    Errors errors;
    const FileDescriptor* file = pool.BuildFileCollectingErrors(proto, &errors);
    offences.insert(offences.end(), errors.lines().begin(), errors.lines().end());
    if (file == nullptr) continue;
    if (!absl::StartsWith(proto.name(), own_prefix)) continue;
    own.push_back(file);
    linter.CheckFile(*file, proto);
  }
  linter.CheckPackages(own);
  linter.CheckRpcTypesUnique(own);
  return offences;
}

}  // namespace annulus::testing
