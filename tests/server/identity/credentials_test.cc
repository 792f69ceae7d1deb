#include "server/identity/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "annulus/v1/admin.pb.h"
#include "annulus/v1/document.pb.h"
#include "annulus/v1/inference.pb.h"
#include "annulus/v1/model.pb.h"
#include "server/identity/call_roles.h"
#include "server/identity/file_watch.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string FileFor(const std::string& token, const std::string& roles = "[generate]") {
  return absl::StrCat("tenants:\n  - name: acme\n    callers:\n      - token: ",
                      TokenHash::Of(token).text(), "\n        roles: ", roles,
                      "\n      - certificate: acme.example\n        roles: [documents]\n");
}

class CredentialsTest : public ::testing::Test {
 protected:
  CredentialsTest() {
    config_.tokens_file = directory_.path() / "tokens.yaml";
    Write(FileFor("one"));
  }
  void Write(const std::string& text, mode_t mode = 0640) {
    directory_.Write("tokens.yaml", text);
    ASSERT_EQ(chmod(config_.tokens_file.c_str(), mode), 0);
  }

  const testing::TempDirectory directory_;
  ServerConfig config_;
};

TEST_F(CredentialsTest, TellsCallersByTokenOrCertificate) {
  const auto credentials = Credentials::Open(config_);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  const auto caller = (*credentials)->FindToken("Bearer one");
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->tenant.name(), "acme");
  EXPECT_EQ(caller->roles, Roles{Role::kGenerate});
  for (const char* wrong : {"Bearer two", "Bearer ", "one", "", "Bearer one ", "Bearerone"}) {
    EXPECT_FALSE((*credentials)->FindToken(wrong)) << wrong;
  }
  EXPECT_TRUE((*credentials)->FindToken("bearer one")) << "schemes have letters of either case";
  const auto certificate = (*credentials)->FindCertificate({"x", "acme.example"});
  ASSERT_TRUE(certificate);
  EXPECT_EQ(certificate->roles, Roles{Role::kDocuments});
  EXPECT_FALSE((*credentials)->FindCertificate({"x"}));
  EXPECT_FALSE((*credentials)->FindCertificate({}));
  EXPECT_FALSE((*credentials)->open_to_all());
  EXPECT_FALSE((*credentials)->IsAdminToken("Bearer one"));
}

TEST_F(CredentialsTest, CountsTheTenantsThatMayUpload) {
  EXPECT_EQ((*Credentials::Open(ServerConfig()))->document_tenants(), 1u);
  const auto credentials = Credentials::Open(config_);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ((*credentials)->document_tenants(), 1u);
  std::string tenants = "tenants:\n";
  const auto add = [&](const std::string& name, const std::string& roles) {
    absl::StrAppend(&tenants, "  - name: ", name,
                    "\n    callers:\n      - token: ", TokenHash::Of(name).text(),
                    "\n        roles: ", roles, "\n");
  };
  add("a", "[generate, documents]");
  add("b", "[documents]");
  add("operators", "[admin, metrics]");
  Write(tenants);
  ASSERT_TRUE((*credentials)->Reload().ok());
  EXPECT_EQ((*credentials)->document_tenants(), 2u);
}

TEST_F(CredentialsTest, ABrokenNewFileChangesNothing) {
  const auto credentials = Credentials::Open(config_);
  ASSERT_TRUE(credentials.ok());
  Write("tenants: 1");
  EXPECT_THAT(std::string((*credentials)->Reload().message()),
              AllOf(HasSubstr("tokens-file"), HasSubstr("tokens.yaml:1")));
  EXPECT_TRUE((*credentials)->FindToken("Bearer one"));
  Write(FileFor("two"));
  EXPECT_TRUE((*credentials)->Reload().ok());
  EXPECT_FALSE((*credentials)->FindToken("Bearer one"));
  EXPECT_TRUE((*credentials)->FindToken("Bearer two"));
}

// A token that was taken out of one file is not valid because another file is broken.
TEST_F(CredentialsTest, ABrokenFileKeepsNoTokenOfAnotherValid) {
  config_.auth_token_file = directory_.path() / "auth";
  config_.admin_token_file = directory_.path() / "admin";
  directory_.Write("auth", "everybody\n");
  directory_.Write("admin", "operator\n");
  const auto credentials = Credentials::Open(config_);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  Write(FileFor("two"));
  directory_.Write("auth", "\n");
  directory_.Write("admin", "\n");
  EXPECT_THAT(std::string((*credentials)->Reload().message()),
              AllOf(HasSubstr("auth-token-file"), HasSubstr("admin-token-file")));
  EXPECT_FALSE((*credentials)->FindToken("Bearer one"));
  EXPECT_TRUE((*credentials)->FindToken("Bearer two"));
  EXPECT_TRUE((*credentials)->FindToken("Bearer everybody")) << "as it was before";
  EXPECT_TRUE((*credentials)->IsAdminToken("Bearer operator"));
  directory_.Write("auth", "all\n");
  Write("tenants: 1");
  EXPECT_FALSE((*credentials)->Reload().ok());
  EXPECT_FALSE((*credentials)->FindToken("Bearer everybody"));
  EXPECT_TRUE((*credentials)->FindToken("Bearer all"));
  EXPECT_TRUE((*credentials)->FindToken("Bearer two"));
}

TEST_F(CredentialsTest, AFileThatOthersCouldReadOrChangeIsRefused) {
  for (const mode_t mode : {0600, 0400, 0640, 0440}) {
    Write(FileFor("one"), mode);
    EXPECT_TRUE(Credentials::Open(config_).ok()) << mode;
  }
  for (const mode_t mode : {0644, 0660, 0602, 0641}) {
    Write(FileFor("one"), mode);
    EXPECT_THAT(std::string(Credentials::Open(config_).status().message()), HasSubstr("chmod 640"))
        << mode;
  }
}

TEST_F(CredentialsTest, ChangesAreSeenOnceTheyStandStill) {
  FileWatch watch({"", config_.tokens_file});
  EXPECT_FALSE(watch.Changed());
  directory_.Write("tokens.yaml", FileFor("a longer token"));
  EXPECT_FALSE(watch.Changed()) << "it may still be being written";
  EXPECT_TRUE(watch.Changed());
  EXPECT_FALSE(watch.Changed());
  ASSERT_EQ(unlink(config_.tokens_file.c_str()), 0);
  EXPECT_FALSE(watch.Changed());
  EXPECT_TRUE(watch.Changed());
}

// A method that nobody decided about is the administrator's; here it is to be decided.
TEST(CallRolesTest, EveryCallHasARow) {
  for (const google::protobuf::FileDescriptor* file :
       {v1::GenerateRequest::descriptor()->file(), v1::DrainRequest::descriptor()->file(),
        v1::GetModelRequest::descriptor()->file(), v1::GetDocumentRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      for (int j = 0; j < file->service(i)->method_count(); ++j) {
        const absl::string_view name = file->service(i)->method(j)->name();
        EXPECT_THAT(AllMethods(), Contains(name));
      }
    }
  }
  EXPECT_EQ(RolesFor("NoSuchCall"), Roles{Role::kAdmin});
}

}  // namespace
}  // namespace annulus::server
