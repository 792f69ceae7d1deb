#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"

namespace annulus::client {
namespace {

using testing::CliInput;
using testing::CliResult;
using testing::FakeServer;
using ::testing::HasSubstr;

constexpr char kPlan[] = R"(
  prompt_tokens: 3738 max_answer_tokens: 256 max_context: 8192 fit: FIT_NOW
  ranks { rank: 0 kv_bytes: 1048576 cached_bytes: 524288 kv_bytes_total: 268435456 }
  ranks { rank: 2 kv_bytes: 1048576 kv_bytes_total: 268435456 }
  cached_tokens: 3712 host_tokens: 640 disk_tokens: 3648 policy: "dense" density: 1 requests_ahead: 1
  time_to_first_token: 0.5 prefill: 0.25)";

class PlanCommand : public ::testing::Test {
 protected:
  PlanCommand() { server_.AddDocument("story", "Once."); }

  void SetPlan(const std::string& text) {
    v1::PlanResponse plan;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &plan));
    server_.SetPlan(plan);
  }
  CliResult Run(std::vector<std::string> arguments, const CliInput& input = {}) {
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return testing::RunCliInProcess(arguments, input);
  }

  FakeServer server_;
};

TEST_F(PlanCommand, ShowsAPlanAndAsksNothing) {
  SetPlan(kPlan);
  const CliResult result = Run(
      {"plan", "story", "Who?", "-s", "Be brief.", "--max-tokens", "7", "--attention", "dense"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "prompt       3,738 tokens: 3,712 in memory, 640 in host memory, 3,648 on disk\n"
            "answer       at most 256 tokens; the context is 8,192\n"
            "memory       fits now, on 2 ranks\n"
            "attention    dense, density 1\n"
            "first token  expected after 500 ms, of which prefill takes 250 ms; 1 request waits\n"
            "\n"
            "RANK  KEYS AND VALUES     CACHED  TOTAL OF RANK\n"
            "   0          1.0 MiB  512.0 KiB      256.0 MiB\n"
            "   2          1.0 MiB        0 B      256.0 MiB\n");
  EXPECT_TRUE(server_.specs().empty());
  ASSERT_EQ(server_.plan_requests().size(), 1u);
  const v1::GenerationSpec spec = server_.plan_requests()[0].spec();
  EXPECT_EQ(spec.documents(0), "story");
  ASSERT_EQ(spec.messages().messages_size(), 2);
  EXPECT_EQ(spec.messages().messages(0).content(), "Be brief.");
  EXPECT_EQ(spec.messages().messages(1).content(), "Who?");
  EXPECT_EQ(spec.sampling().max_tokens(), 7);
  EXPECT_EQ(spec.attention().policy(), "dense");
}

TEST_F(PlanCommand, PrintsJson) {
  SetPlan(kPlan);
  const CliResult result = Run({"plan", "story", "Who?", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out,
            "{\"prompt_tokens\":3738,\"max_answer_tokens\":256,\"max_context\":8192,"
            "\"fit\":\"now\",\"obstacle\":\"\",\"ring_degree\":2,\"ranks\":["
            "{\"rank\":0,\"kv_bytes\":1048576,\"cached_bytes\":524288,"
            "\"kv_bytes_total\":268435456},"
            "{\"rank\":2,\"kv_bytes\":1048576,\"cached_bytes\":0,"
            "\"kv_bytes_total\":268435456}],"
            "\"cached_tokens\":3712,\"host_tokens\":640,\"disk_tokens\":3648,\"policy\":\"dense\","
            "\"choice\":\"\","
            "\"density\":1,\"requests_ahead\":1,\"time_to_first_token\":0.5,\"prefill\":0.25,"
            "\"system_folded\":false}\n");
}

TEST_F(PlanCommand, JsonIsNullWhereNothingIsKnown) {
  SetPlan("fit: FIT_NEVER obstacle: \"9 bytes of 3\" policy: \"adaptive\" choice: \"auto: why\"");
  const CliResult result = Run({"plan", "Who?", "--json"});
  EXPECT_EQ(
      result.out,
      R"({"prompt_tokens":0,"max_answer_tokens":0,"max_context":0,"fit":"never",)"
      R"("obstacle":"9 bytes of 3","ring_degree":0,"ranks":[],"cached_tokens":0,)"
      R"("host_tokens":0,"disk_tokens":0,"policy":"adaptive","choice":"auto: why",)"
      R"("density":null,"requests_ahead":0,"time_to_first_token":null,"prefill":null,"system_folded":false})"
      "\n");
  SetPlan("");
  EXPECT_THAT(Run({"plan", "Who?", "--json"}).out, HasSubstr(R"("fit":"unknown")"));
}

TEST_F(PlanCommand, SaysWhatIsNotKnownAndWhatNeverFits) {
  SetPlan("prompt_tokens: 5 fit: FIT_NOW policy: \"adaptive\" choice: \"auto: why\" ranks {}");
  CliResult result = Run({"plan", "Who?"});
  EXPECT_THAT(result.out, HasSubstr("adaptive, density depends on the content\n"));
  EXPECT_THAT(result.out, HasSubstr("             auto: why\n"));
  EXPECT_THAT(result.out,
              HasSubstr("not known yet: the server measures it with its first prompt\n"));
  SetPlan("fit: FIT_NOW policy: \"dense\" system_folded: true ranks {}");
  EXPECT_THAT(Run({"plan", "Who?"}).out, HasSubstr("template     refuses a system message"));
  SetPlan("fit: FIT_LATER ranks {}");
  result = Run({"plan", "Who?"});
  EXPECT_THAT(result.out, HasSubstr("memory       fits when running requests have ended\n"));
  EXPECT_THAT(result.out, HasSubstr("not known: it depends on when there is room"));
  SetPlan("fit: FIT_NEVER obstacle: \"9 bytes of 3\" policy: \"dense\"");
  result = Run({"plan", "story", "-"}, {.in = "Who?"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("memory       never fits: 9 bytes of 3\n"));
  EXPECT_THAT(result.out, ::testing::Not(HasSubstr("first token")));
  EXPECT_EQ(server_.plan_requests().back().spec().messages().messages(0).content(), "Who?");
}

TEST_F(PlanCommand, FailuresAreTold) {
  EXPECT_EQ(Run({"plan"}).exit_code, 2);
  server_.SetFailure(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no such method"));
  EXPECT_EQ(Run({"plan", "Who?"}).exit_code, 64 + 12);
}

}  // namespace
}  // namespace annulus::client
