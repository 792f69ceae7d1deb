#include "server/identity/tenant_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string& Good() {
  static const std::string kText = absl::StrCat(
      "tenants:\n"
      "  - name: acme\n"
      "    quotas:\n"
      "      requests_per_minute: 600\n"
      "      document_bytes: 1GiB\n"
      "      documents: 12\n"
      "      kv_bytes: 3MiB\n"
      "      host_bytes: 1GiB\n"
      "      disk_bytes: 2GiB\n"
      "    callers:\n"
      "      - token: ",
      TokenHash::Of("one").text(),
      "\n"
      "        roles: [generate, documents]\n"
      "      - certificate: search.acme.example\n"
      "        roles: [metrics]\n"
      "  - name: operators\n"
      "    callers:\n"
      "      - token: ",
      TokenHash::Of("two").text(),
      "\n"
      "        roles: [admin]\n");
  return kText;
}

std::string Error(const std::string& text) {
  const auto file = ParseTenantFile("t.yaml", text);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(file.status().message());
}

// The good file with one thing changed.
std::string ErrorWith(const std::string& from, const std::string& to) {
  const std::string text = absl::StrReplaceAll(Good(), {{from, to}});
  EXPECT_NE(text, Good()) << from;
  return Error(text);
}

TEST(TenantFileTest, ReadsTenantsCallersRolesAndQuotas) {
  const auto file = ParseTenantFile("t.yaml", Good());
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tokens.size(), 2u);
  ASSERT_EQ(file->certificates.size(), 1u);
  EXPECT_TRUE(file->tokens[0].first.Is(TokenHash::Of("one")));
  const Caller& acme = file->tokens[0].second;
  EXPECT_EQ(acme.tenant.name(), "acme");
  EXPECT_EQ(acme.roles, (Roles{Role::kGenerate, Role::kDocuments}));
  EXPECT_EQ(acme.quotas.requests_per_minute, 600);
  EXPECT_EQ(acme.quotas.document_bytes, int64_t{1} << 30);
  EXPECT_EQ(acme.quotas.tokens_per_minute, 0);
  EXPECT_EQ(acme.quotas.documents, 12);
  EXPECT_EQ(acme.quotas.room.kv_bytes, 3 << 20);
  EXPECT_EQ(acme.quotas.room.host_bytes, int64_t{1} << 30);
  EXPECT_EQ(acme.quotas.room.disk_bytes, int64_t{2} << 30);
  EXPECT_EQ(file->certificates[0].first, "search.acme.example");
  EXPECT_EQ(file->certificates[0].second.tenant.name(), "acme");
  EXPECT_EQ(file->certificates[0].second.quotas.requests_per_minute, 600);
  EXPECT_EQ(file->tokens[1].second.roles, Roles{Role::kAdmin});
}

TEST(TenantFileTest, SaysWhereAndWhatIsWrong) {
  EXPECT_THAT(Error(""), HasSubstr("tenants"));
  EXPECT_THAT(Error("tenants: []"), HasSubstr("at least one"));
  EXPECT_THAT(Error("tenants: [1"), HasSubstr("not valid YAML"));
  EXPECT_THAT(Error("- 1"), HasSubstr("the file"));
  EXPECT_THAT(ErrorWith("quotas:", "qoutas:"), AllOf(HasSubstr("t.yaml:3"), HasSubstr("quotas")));
  EXPECT_THAT(ErrorWith("name: operators", "name: acme"),
              AllOf(HasSubstr("t.yaml:15"), HasSubstr("twice")));
  EXPECT_THAT(ErrorWith("name: operators", "nmae: operators"), HasSubstr("name"));
  EXPECT_THAT(ErrorWith("name: operators", "name: 'a b'"), HasSubstr("t.yaml:15"));
  EXPECT_THAT(ErrorWith("[admin]", "[amdin]"), AllOf(HasSubstr("t.yaml:18"), HasSubstr("admin")));
  EXPECT_THAT(ErrorWith("[admin]", "[]"), HasSubstr("roles"));
  EXPECT_THAT(ErrorWith("600", "-1"), HasSubstr("requests_per_minute"));
  EXPECT_THAT(ErrorWith("600", "0"), HasSubstr("requests_per_minute"));
  EXPECT_THAT(ErrorWith("1GiB", "lots"), HasSubstr("document_bytes"));
  EXPECT_THAT(ErrorWith("3MiB", "0"), HasSubstr("kv_bytes"));
  EXPECT_THAT(ErrorWith("documents: 12", "documents: 1GiB"), HasSubstr("documents"));
  EXPECT_THAT(ErrorWith("certificate: search.acme.example",
                        absl::StrCat("token: ", TokenHash::Of("one").text())),
              HasSubstr("same token"));
  EXPECT_THAT(ErrorWith("certificate: search.acme.example", "roles: [admin]"),
              HasSubstr("given twice"));
  EXPECT_THAT(ErrorWith("        roles: [admin]\n", ""), HasSubstr("roles"));
}

// Whoever writes a token where its hash belongs does not find it in the log.
TEST(TenantFileTest, DoesNotRepeatTokens) {
  EXPECT_THAT(ErrorWith(TokenHash::Of("two").text(), "open-sesame-open-sesame"),
              AllOf(HasSubstr("--hash-token"), Not(HasSubstr("sesame"))));
}

// No text of the file's bytes ends the program.
TEST(TenantFileTest, DamagedFilesAreErrorsOrFiles) {
  for (size_t i = 0; i < Good().size(); ++i) {
    (void)ParseTenantFile("t.yaml", Good().substr(0, i));
    std::string damaged = Good();
    damaged[i] = static_cast<char>(damaged[i] ^ 0x11);
    (void)ParseTenantFile("t.yaml", damaged);
  }
}

TEST(TokenHashTest, ReadsBackWhatItWrites) {
  const TokenHash hash = TokenHash::Of("abc");
  EXPECT_EQ(hash.text(), "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const auto read = TokenHash::Parse(hash.text());
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read->Is(hash));
  EXPECT_FALSE(read->Is(TokenHash::Of("abd")));
  EXPECT_FALSE(TokenHash::Parse(hash.text().substr(1)).ok());
  EXPECT_FALSE(TokenHash::Parse(hash.text() + "0").ok());
}

TEST(TokenHashTest, TokensThatCouldBeGuessedAreRefused) {
  EXPECT_TRUE(CheckNewToken(std::string(20, 'x')).ok());
  EXPECT_THAT(std::string(CheckNewToken("hunter2").message()),
              AllOf(HasSubstr("openssl rand"), Not(HasSubstr("hunter2"))));
  EXPECT_FALSE(CheckNewToken(std::string(20, 'x') + " y").ok());
  EXPECT_FALSE(CheckNewToken(std::string(20, '\xc3')).ok());
}

}  // namespace
}  // namespace annulus::server
