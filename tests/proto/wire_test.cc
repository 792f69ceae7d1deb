// A client of an earlier time and a daemon of today understand each other, and the other way round:
// wire/be64299.txt has what that commit's client relies on (WireFacts), and all of it must still be
// true. New lines may come. A line that has to go breaks clients: give the new thing a new number.

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "tests/proto/wire_facts.h"
#include "tests/support/test_data.h"

namespace annulus::testing {
namespace {

std::set<std::string> FactsOfToday() {
  std::ifstream file(BuildFolder() / ANNULUS_DESCRIPTOR_SET, std::ios::binary);
  google::protobuf::FileDescriptorSet set;
  EXPECT_TRUE(set.ParseFromIstream(&file)) << ANNULUS_DESCRIPTOR_SET;
  return WireFacts(set);
}

TEST(WireTest, WhatOldClientsRelyOnStillHolds) {
  std::ifstream recorded(TestFile("proto/wire/be64299.txt"));
  const std::set<std::string> today = FactsOfToday();
  int lines = 0;
  for (std::string line; std::getline(recorded, line); ++lines) {
    EXPECT_TRUE(today.contains(line)) << "no longer so: " << line;
  }
  EXPECT_GT(lines, 150);
}

TEST(WireTest, FactsTellAllThatClientsRelyOn) {
  const std::set<std::string> today = FactsOfToday();
  for (const char* fact :
       {"annulus.v1.InferenceService.StreamGenerate(annulus.v1.StreamGenerateRequest): stream "
        "annulus.v1.StreamGenerateResponse",
        "annulus.v1.DocumentService.UploadDocument(stream annulus.v1.UploadDocumentRequest): "
        "annulus.v1.UploadDocumentResponse",
        "annulus.v1.SamplingParams max_tokens = 1: optional int32",
        "google.rpc.RetryInfo retry_delay = 1: google.protobuf.Duration"}) {
    EXPECT_TRUE(today.contains(fact)) << fact;
  }
}

}  // namespace
}  // namespace annulus::testing
