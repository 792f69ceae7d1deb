#include "client/cli/chat/message_json.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "annulus/v1/admin.pb.h"
#include "annulus/v1/attention.pb.h"
#include "annulus/v1/inference.pb.h"
#include "annulus/v1/model.pb.h"
#include "annulus/v1/plan.pb.h"

namespace annulus::client {
namespace {

template <typename Message>
std::string LineOf(const std::string& text, AbsentField absent = AbsentField::kLeftOut) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return JsonLine(MessageJson(message, absent));
}

TEST(MessageJson, NumbersAreNumbersButForUnsignedOnesOf64Bits) {
  EXPECT_EQ(LineOf<v1::PlannedRank>(
                "rank: 3 kv_bytes: -9223372036854775808 kv_bytes_total: 1000000000000000"),
            "{\"rank\":3,\"kv_bytes\":-9223372036854775808,\"cached_bytes\":0,"
            "\"kv_bytes_total\":1000000000000000}\n");
  EXPECT_EQ(LineOf<v1::Origin>("seed: 18446744073709551615"),
            "{\"seed\":\"18446744073709551615\",\"ring_degree\":0,\"kernels\":\"\","
            "\"digest\":\"\",\"system_folded\":false}\n");
  EXPECT_EQ(LineOf<v1::AttentionRate>("flops: 3.8e10 alone_flops: inf query_seconds: nan"),
            "{\"rows\":0,\"flops\":3.8e+10,\"alone_flops\":null,\"query_seconds\":null}\n");
  EXPECT_EQ(LineOf<v1::LogprobAlternative>("token_id: 1 bytes: 'a' logprob: -0.1"),
            "{\"token_id\":1,\"text\":\"\",\"bytes\":\"YQ==\",\"logprob\":-0.1}\n");
}

TEST(MessageJson, DefaultsAreThere) {
  EXPECT_EQ(LineOf<v1::Model>(""),
            R"({"name":"","architecture":"","description":"","parameters":0,"layers":0,)"
            R"("hidden_size":0,"vocabulary":0,"max_context":0,"weights_dtype":"","kv_dtype":"",)"
            R"("kv_bytes_per_token":0,"kernels":"","has_chat_template":false,)"
            R"("end_of_text_ids":[]})"
            "\n");
  EXPECT_EQ(LineOf<v1::CacheMiss>(""), "{\"reason\":\"unknown\",\"position\":0}\n");
  EXPECT_EQ(LineOf<v1::Origin>(""),
            R"({"seed":"0","ring_degree":0,"kernels":"","digest":"","system_folded":false})"
            "\n");
}

TEST(MessageJson, KeysOfMapsAreSorted) {
  EXPECT_EQ(LineOf<v1::ProcessMemory>("foreseen_bytes { key: \"weights\" value: 2 }"
                                      "foreseen_bytes { key: \"kv\" value: 1 }"
                                      "foreseen_bytes { key: \"step\" value: 0 }"),
            "{\"foreseen_bytes\":{\"kv\":1,\"step\":0,\"weights\":2},\"resident_bytes\":0,"
            "\"resident_most_bytes\":0}\n");
}

// Of the declarations, not of the numbers.
TEST(MessageJson, FieldsStandInTheOrderOfTheirDeclarations) {
  EXPECT_EQ(LineOf<v1::RankLoad>("node: 0 up: true kv_bytes_total: 1"),
            "{\"rank\":0,\"up\":true,\"node\":0,\"device\":\"\",\"memory_bytes\":{},"
            "\"kv_bytes_used\":0,\"kv_bytes_total\":1}\n");
}

TEST(MessageJson, AbsentFieldsAreLeftOutOrNull) {
  const std::string detail = "{\"layer\":0,\"kv_head\":1,\"density\":0,";
  EXPECT_EQ(LineOf<v1::AttentionDetail>("kv_head: 1 map: \"\\377\\000<\" sampled_coverage: 0"),
            detail + "\"sampled_coverage\":0,\"map\":\"/wA8\",\"computed\":\"\"}\n");
  EXPECT_EQ(LineOf<v1::AttentionDetail>("kv_head: 1 sampled_coverage: 0", AbsentField::kNull),
            detail +
                "\"estimated_coverage\":null,\"sampled_coverage\":0,\"map\":\"\","
                "\"computed\":\"\"}\n");
  EXPECT_THAT(LineOf<v1::Completion>(""), ::testing::Not(::testing::HasSubstr("usage")));
}

TEST(EnumText, IsShortAndLowerCase) {
  EXPECT_EQ(EnumText(*v1::ServerState_descriptor(), v1::SERVER_STATE_DRAINING), "draining");
  EXPECT_EQ(EnumText(*v1::CacheMiss::Reason_descriptor(), v1::CacheMiss::REASON_DISK_SLOWER),
            "disk_slower");
  EXPECT_EQ(EnumText(*v1::FinishReason_descriptor(), 0), "unknown");
  EXPECT_EQ(EnumText(*v1::FinishReason_descriptor(), 99), "unknown");
  EXPECT_THAT(LineOf<v1::PlanResponse>("fit: FIT_LATER"),
              ::testing::HasSubstr("\"fit\":\"later\""));
}

TEST(InsertAfter, KeepsTheOrder) {
  nlohmann::ordered_json object = {{"b", 1}, {"a", "x"}};
  InsertAfter("b", "new", 2, object);
  EXPECT_EQ(JsonLine(object), "{\"b\":1,\"new\":2,\"a\":\"x\"}\n");
}

TEST(WriteMembers, GoOnInTheSameObject) {
  JsonWriter json;
  json.BeginObject().Key("event").String("a");
  WriteMembers({{"list", {1, -2, 0.5, nullptr, true}}, {"text", "<\n>"}}, json);
  EXPECT_EQ(json.EndObject().text(),
            "{\"event\":\"a\",\"list\":[1,-2,0.5,null,true],\"text\":\"<\\n>\"}");
}

}  // namespace
}  // namespace annulus::client
