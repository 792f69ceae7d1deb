#include "engine/base/tenant_id.h"

#include <string>

#include "gtest/gtest.h"

namespace annulus {
namespace {

TEST(TenantIdTest, NamesAreCheckedAndCompared) {
  EXPECT_EQ(TenantId().name(), "default");
  EXPECT_EQ(TenantId(), TenantId::FromName("default").value());
  for (const std::string& name :
       {std::string("a"), std::string("Team-1_x.y"), std::string(64, 'z')}) {
    const auto tenant = TenantId::FromName(name);
    ASSERT_TRUE(tenant.ok()) << tenant.status();
    EXPECT_EQ(tenant->name(), name);
    EXPECT_NE(*tenant, TenantId());
  }
}

TEST(TenantIdTest, NamesThatCouldBeMistakenForAnotherAreRefused) {
  for (const std::string& name :
       {std::string(), std::string("a/b"), std::string("a b"), std::string("a\n"),
        std::string("a\0b", 3), std::string("\xC3\xA4"), std::string(65, 'z'),
        std::string(1 << 20, 'z')}) {
    const absl::Status status = TenantId::FromName(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_LT(status.message().size(), 500u);
  }
}

}  // namespace
}  // namespace annulus
