#include "server/config/admin_address.h"

#include <gtest/gtest.h>

namespace annulus::server {
namespace {

TEST(AdminAddressTest, IsInTheFolderThatIsThisDaemonsAlone) {
  EXPECT_EQ(AutomaticAdminSocket({"/run/annulus", "/run/user/7", 7}, 5), "/run/annulus/admin.sock");
  EXPECT_EQ(AutomaticAdminSocket({"/run/a:/run/b", nullptr, 7}, 5), "/run/a/admin.sock");
  EXPECT_EQ(AutomaticAdminSocket({nullptr, "/run/user/7", 7}, 5), "/run/user/7/annulus-5.sock");
  const RuntimeFolders none = {"", "relative", 7};
  EXPECT_TRUE(AutomaticAdminSocket(none, 5).ends_with("/annulus-7/5.sock"));
}

}  // namespace
}  // namespace annulus::server
