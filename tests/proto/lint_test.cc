#include "tests/proto/lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::testing {
namespace {

namespace fs = std::filesystem;
using ::google::protobuf::FileDescriptorSet;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A file that breaks no rule.
constexpr char kGood[] = R"(syntax = "proto3";
package good.v1;
// Serves.
service PingService {
  // Pings.
  rpc Ping(PingRequest) returns (PingResponse);
}
// Kind of ping.
enum PingKind {
  // Never sent.
  PING_KIND_UNSPECIFIED = 0;
  // Loud.
  PING_KIND_LOUD = 1;
}
// Request of Ping.
message PingRequest {
  // What to send.
  oneof body {
    // As text.
    string text = 1;
    // As a number.
    int32 number = 2;
  }
  // How often.
  optional int32 times = 3;
  // Weights by name.
  map<string, int32> weights = 4;
}
// Response of Ping.
message PingResponse {
  // Which one.
  PingKind kind = 1;
}
)";

using PathsAndTexts = std::vector<std::pair<std::string, std::string>>;

// The descriptor set of the given files, made by the Protobuf compiler.
FileDescriptorSet Compile(const PathsAndTexts& files) {
  const TempDirectory directory;
  const fs::path& folder = directory.path();
  std::string command = absl::StrCat(ANNULUS_PROTOC, " --include_imports --include_source_info -I ",
                                     folder.string(), " -o ", (folder / "set").string());
  for (const auto& [path, text] : files) {
    fs::create_directories((folder / path).parent_path());
    std::ofstream(folder / path) << text;
    absl::StrAppend(&command, " ", path);
  }
  EXPECT_EQ(std::system(absl::StrCat(command, " 2>/dev/null").c_str()), 0) << command;
  FileDescriptorSet set;
  std::ifstream compiled(folder / "set", std::ios::binary);
  EXPECT_TRUE(set.ParseFromIstream(&compiled));
  return set;
}

std::vector<std::string> LintFiles(const PathsAndTexts& files) { return Lint(Compile(files), ""); }

struct Mutation {
  std::string rule;
  std::string from;
  std::string to;
};
void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.rule; }

class LintRule : public ::testing::TestWithParam<Mutation> {};

TEST_P(LintRule, NoticesOneOffence) {
  const Mutation& mutation = GetParam();
  const std::string bad = absl::StrReplaceAll(kGood, {{mutation.from, mutation.to}});
  ASSERT_NE(bad, kGood);
  EXPECT_THAT(LintFiles({{"good/v1/ping.proto", bad}}),
              Contains(StartsWith(absl::StrCat(mutation.rule, " "))));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, LintRule,
    ::testing::Values(Mutation{"COMMENT_MESSAGE", "// Request of Ping.\n", ""},
                      Mutation{"COMMENT_FIELD", "  // How often.\n", ""},
                      Mutation{"COMMENT_FIELD", "    // As a number.\n", "    //\n"},
                      Mutation{"COMMENT_ONEOF", "  // What to send.\n", ""},
                      Mutation{"COMMENT_ENUM", "// Kind of ping.\n", ""},
                      Mutation{"COMMENT_ENUM_VALUE", "  // Loud.\n", ""},
                      Mutation{"COMMENT_SERVICE", "// Serves.\n", ""},
                      Mutation{"COMMENT_RPC", "  // Pings.\n", ""},
                      Mutation{"PACKAGE_DEFINED", "package good.v1;\n", ""},
                      Mutation{"PACKAGE_LOWER_SNAKE_CASE", "good.v1", "Good.v1"},
                      Mutation{"PACKAGE_VERSION_SUFFIX", "good.v1", "good.one"},
                      Mutation{"PACKAGE_DIRECTORY_MATCH", "good.v1", "fine.v1"},
                      Mutation{"MESSAGE_PASCAL_CASE", "PingRequest", "ping_request"},
                      Mutation{"FIELD_LOWER_SNAKE_CASE", "times", "nTimes"},
                      Mutation{"FIELD_LOWER_SNAKE_CASE", "times", "times__"},
                      Mutation{"ONEOF_LOWER_SNAKE_CASE", "body", "Body"},
                      Mutation{"ENUM_PASCAL_CASE", "PingKind", "Ping_Kind"},
                      Mutation{"ENUM_VALUE_UPPER_SNAKE_CASE", "PING_KIND_LOUD", "PING_KIND_loud"},
                      Mutation{"ENUM_VALUE_PREFIX", "PING_KIND_LOUD", "PING_LOUD"},
                      Mutation{"ENUM_ZERO_VALUE_SUFFIX", "PING_KIND_UNSPECIFIED", "PING_KIND_NONE"},
                      Mutation{"ENUM_NO_ALLOW_ALIAS", "enum PingKind {",
                               "enum PingKind {\n  option allow_alias = true;"
                               "\n  // Same.\n  PING_KIND_NONE_UNSPECIFIED = 0;"},
                      Mutation{"SERVICE_PASCAL_CASE", "PingService", "pingService"},
                      Mutation{"SERVICE_SUFFIX", "PingService", "PingServer"},
                      Mutation{"RPC_PASCAL_CASE", "rpc Ping(", "rpc ping("},
                      Mutation{"RPC_REQUEST_STANDARD_NAME", "PingRequest", "PingInput"},
                      Mutation{"RPC_RESPONSE_STANDARD_NAME", "PingResponse", "PingOutput"},
                      Mutation{"RPC_REQUEST_RESPONSE_UNIQUE", "(PingResponse)", "(PingRequest)"}));

TEST(Lint, AcceptsAGoodFile) { EXPECT_THAT(LintFiles({{"good/v1/ping.proto", kGood}}), IsEmpty()); }

TEST(Lint, NoticesAnInvalidSet) {
  FileDescriptorSet set;
  set.add_file()->set_name("a/v1/a.proto");
  set.mutable_file(0)->add_dependency("missing.proto");
  EXPECT_THAT(Lint(set, ""), ElementsAre(StartsWith("UNRESOLVED a/v1/a.proto: ")));
}

TEST(Lint, NoticesAFileName) {
  EXPECT_THAT(LintFiles({{"good/v1/Ping.proto", kGood}}),
              Contains(StartsWith("FILE_LOWER_SNAKE_CASE ")));
}

TEST(Lint, NoticesTheOldSyntax) {
  const auto offences = LintFiles({{"a/v1/a.proto", R"(package a.v1;
      message M { required int32 f = 1; }
      enum E { E_A = 1; })"}});
  for (const char* rule : {"SYNTAX_SPECIFIED ", "FIELD_NOT_REQUIRED ", "ENUM_FIRST_VALUE_ZERO "}) {
    EXPECT_THAT(offences, Contains(StartsWith(rule)));
  }
}

TEST(Lint, NoticesImports) {
  const std::string message = "\n// M.\nmessage M {}\n";
  const std::string a = absl::StrCat("syntax = \"proto3\"; package a.v1;", message);
  const auto importer = [&](absl::string_view how) {
    return absl::StrCat("syntax = \"proto3\"; package b.v1; import ", how, "\"a/v1/a.proto\";",
                        message);
  };
  EXPECT_THAT(LintFiles({{"a/v1/a.proto", a}, {"b/v1/b.proto", importer("")}}),
              Contains(StartsWith("IMPORT_USED ")));
  EXPECT_THAT(LintFiles({{"a/v1/a.proto", a}, {"b/v1/b.proto", importer("public ")}}),
              Contains(StartsWith("IMPORT_NO_PUBLIC ")));
  EXPECT_THAT(LintFiles({{"a/v1/a.proto", a}, {"b/v1/b.proto", importer("weak ")}}),
              Contains(StartsWith("IMPORT_NO_WEAK ")));
}

TEST(Lint, NoticesPackagesThatImportEachOther) {
  EXPECT_THAT(
      LintFiles({{"a/v1/a.proto", "syntax = \"proto3\"; package a.v1;"},
                 {"b/v1/b.proto", "syntax = \"proto3\"; package b.v1; import \"a/v1/a.proto\";"},
                 {"a/v1/c.proto", "syntax = \"proto3\"; package a.v1; import \"b/v1/b.proto\";"}}),
      Contains(StartsWith("PACKAGE_NO_IMPORT_CYCLE ")));
}

TEST(Lint, NoticesPackagesInSeveralFoldersAndFoldersOfSeveralPackages) {
  const auto offences = LintFiles({{"a/v1/a.proto", "syntax = \"proto3\"; package a.v1;"},
                                   {"b/v1/b.proto", "syntax = \"proto3\"; package a.v1;"},
                                   {"a/v1/c.proto", "syntax = \"proto3\"; package c.v1;"}});
  EXPECT_THAT(offences, Contains(StartsWith("PACKAGE_SAME_DIRECTORY ")));
  EXPECT_THAT(offences, Contains(StartsWith("DIRECTORY_SAME_PACKAGE ")));
}

TEST(Lint, NoticesOptionsThatDifferWithinAPackage) {
  const std::vector<std::pair<std::string, std::string>> rule_and_option = {
      {"PACKAGE_SAME_CSHARP_NAMESPACE", "csharp_namespace = \"X\""},
      {"PACKAGE_SAME_GO_PACKAGE", "go_package = \"X\""},
      {"PACKAGE_SAME_JAVA_PACKAGE", "java_package = \"X\""},
      {"PACKAGE_SAME_JAVA_MULTIPLE_FILES", "java_multiple_files = true"},
      {"PACKAGE_SAME_PHP_NAMESPACE", "php_namespace = \"X\""},
      {"PACKAGE_SAME_RUBY_PACKAGE", "ruby_package = \"X\""},
      {"PACKAGE_SAME_SWIFT_PREFIX", "swift_prefix = \"X\""}};
  for (const auto& [rule, option] : rule_and_option) {
    EXPECT_THAT(
        LintFiles({{"a/v1/a.proto", "syntax = \"proto3\"; package a.v1;"},
                   {"a/v1/b.proto",
                    absl::StrCat("syntax = \"proto3\"; package a.v1; option ", option, ";")}}),
        Contains(StartsWith(absl::StrCat(rule, " "))));
  }
}

TEST(Lint, PassesOverForeignFiles) {
  const FileDescriptorSet set =
      Compile({{"foreign/Bad.proto", "syntax = \"proto3\"; message bad {}"}});
  EXPECT_THAT(Lint(set, "annulus/"), IsEmpty());
  EXPECT_FALSE(Lint(set, "foreign/").empty());
}

TEST(PublicApi, KeepsTheRules) {
  std::ifstream file(BuildFolder() / ANNULUS_DESCRIPTOR_SET, std::ios::binary);
  FileDescriptorSet set;
  ASSERT_TRUE(set.ParseFromIstream(&file)) << ANNULUS_DESCRIPTOR_SET;
  ASSERT_GE(set.file_size(), 6);
  const std::vector<std::string> offences = Lint(set, "annulus/");
  EXPECT_TRUE(offences.empty()) << absl::StrJoin(offences, "\n");
}

}  // namespace
}  // namespace annulus::testing
