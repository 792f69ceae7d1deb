#include "kernels/base/format_bytes.h"

#include <gtest/gtest.h>

#include <cstddef>

namespace annulus {
namespace {

TEST(FormatBytes, PicksAUnit) {
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1), "1 byte");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(size_t{4} << 30), "4 GiB");
}

}  // namespace
}  // namespace annulus
