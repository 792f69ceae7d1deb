#include "engine/base/sha256.h"

#include "gtest/gtest.h"

namespace annulus {
namespace {

// FIPS 180-2, appendix B.
TEST(Sha256Test, GivesThePublishedValues) {
  EXPECT_EQ(Sha256Of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace annulus
