#include "engine/base/program_id.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

namespace annulus {
namespace {

TEST(ProgramIdTest, IsTheLinkersBuildId) {
  const std::string& id = ProgramId();
  EXPECT_EQ(id.size(), 40u) << id << ": the program was linked without --build-id=sha1";
  EXPECT_TRUE(std::all_of(id.begin(), id.end(), [](unsigned char c) { return isxdigit(c); })) << id;
  EXPECT_EQ(id, ProgramId());
}

}  // namespace
}  // namespace annulus
