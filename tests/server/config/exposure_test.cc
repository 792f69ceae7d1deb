#include "server/config/exposure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/config/loopback.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;

TEST(LoopbackTest, OnlyWhatThisMachineAloneReaches) {
  for (const char* own : {"127.0.0.1:1", "127.9.8.7:1", "localhost:1", "LocalHost:1", "[::1]:1",
                          "[0:0:0:0:0:0:0:1]:1", "[::ffff:127.0.0.1]:1"}) {
    EXPECT_TRUE(IsLoopbackAddress(own)) << own;
  }
  for (const char* other :
       {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.evil.example:1", "127.0.0.1.example:1",
        "localhost.example:1", "[::ffff:10.0.0.1]:1", "[::2]:1", ":1", "", "128.0.0.1:1"}) {
    EXPECT_FALSE(IsLoopbackAddress(other)) << other;
  }
}

TEST(ExposureTest, TellsWhatToSet) {
  ServerConfig config;
  config.listen = "127.0.0.1:50051";
  config.metrics = "[::1]:9464";
  EXPECT_TRUE(FindExposures(config).empty());
  config.listen = "0.0.0.0:50051";
  ASSERT_EQ(FindExposures(config).size(), 1u);
  EXPECT_EQ(FindExposures(config)[0].address, "0.0.0.0:50051");
  EXPECT_THAT(FindExposures(config)[0].remedy, HasSubstr("--tls-certificate"));
  config.tls_certificate = config.tls_key = "x";
  ASSERT_EQ(FindExposures(config).size(), 1u);
  EXPECT_THAT(FindExposures(config)[0].remedy, HasSubstr("--auth-token-file"));
  config.auth_token_file = "x";
  EXPECT_TRUE(FindExposures(config).empty());

  config.metrics = "0.0.0.0:9464";
  ASSERT_EQ(FindExposures(config).size(), 1u);
  EXPECT_THAT(FindExposures(config)[0].danger, HasSubstr("unencrypted"));
  config.metrics_tls = true;
  EXPECT_TRUE(FindExposures(config).empty());
  config.auth_token_file.clear();
  EXPECT_EQ(FindExposures(config).size(), 2u);
  config.metrics.clear();
  EXPECT_EQ(FindExposures(config).size(), 1u);

  config.listen = "127.0.0.1:50051";
  config.http = "127.0.0.1:8000";
  EXPECT_TRUE(FindExposures(config).empty());
  config.http = "0.0.0.0:8000";
  ASSERT_EQ(FindExposures(config).size(), 1u);
  EXPECT_EQ(FindExposures(config)[0].option, "http");
  EXPECT_THAT(FindExposures(config)[0].remedy, HasSubstr("or --http 127.0.0.1:8000"));
}

}  // namespace
}  // namespace annulus::server
