#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"

namespace annulus::client {
namespace {

using testing::CliResult;
using testing::FakeServer;

template <typename T>
T FromText(const std::string& text) {
  T message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

class InfoCommands : public ::testing::Test {
 protected:
  InfoCommands() {
    server_.SetModels({FromText<v1::Model>(R"(
        name: "tiny" architecture: "LlamaForCausalLM" description: "A small model."
        parameters: 1234567 layers: 2 hidden_size: 64 vocabulary: 512 max_context: 4096
        weights_dtype: "bf16" kv_dtype: "f32" kv_bytes_per_token: 2048 kernels: "cpu.scalar"
        end_of_text_ids: [1, 2])")});
    server_.SetInfo(FromText<v1::GetServerInfoResponse>(R"(
        version: "0.1.0" state: SERVER_STATE_SERVING uptime: 183 models: "tiny" ranks: 2
        attention: "strided:block=64,stride=8,local=4"
        limits { max_message_bytes: 1 max_document_bytes: 2 max_stored_bytes: 3 max_documents: 4
                 max_running: 64 max_waiting: 256 })"));
    server_.SetLoad(FromText<v1::GetLoadResponse>(R"(
        running: 1 waiting: 3 kv_usage: 0.375 seconds_since_step: 0.02 healthy: true
        ranks { rank: 0 up: true device: "cpu" kv_bytes_used: 1024 kv_bytes_total: 4096
                memory_bytes { key: "weights" value: 2048 } memory_bytes { key: "kv" value: 4096 }
                memory_bytes { key: "step_buffer" value: 16 } }
        ranks { rank: 1 up: false device: "cpu" kv_bytes_total: 4096
                memory_bytes { key: "kv" value: 4096 } }
        exchange { attention_flops: 38.25e9 attention { rows: 1 flops: 3.125e9 alone_flops: 6e9 query_seconds: -2e-6 }
                   attention { rows: 64 flops: 38.25e9 alone_flops: 7.65e10 } call_keys: 80 message_seconds: 5.9e-6 part_seconds: 5.5e-9
                   source: "measured at start in 31 ms" }
        ring_transport: "addresses")"));
  }

  CliResult Run(std::vector<std::string> arguments, const testing::CliInput& input = {}) {
    arguments.insert(arguments.end(), {"--server", server_.address()});
    return testing::RunCliInProcess(arguments, input);
  }

  FakeServer server_;
};

TEST_F(InfoCommands, StatusShowsEveryCallerWhatItMaySee) {
  server_.SetLoad({}, {grpc::StatusCode::PERMISSION_DENIED, "GetLoad takes the role metrics"});
  const CliResult result = Run({"status"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, ::testing::HasSubstr("annulusd 0.1.0 at "));
  EXPECT_THAT(result.out, ::testing::HasSubstr("load      not shown: it takes the role metrics"));
  EXPECT_THAT(result.out, ::testing::Not(::testing::HasSubstr("RANK")));
  EXPECT_THAT(Run({"status", "--json"}).out, ::testing::EndsWith("\"load\":null}\n"));
}

TEST_F(InfoCommands, ModelsDescribesThem) {
  EXPECT_EQ(Run({"models"}).out,
            "tiny\n"
            "  A small model.\n"
            "  architecture  LlamaForCausalLM, 1,234,567 parameters, 2 layers of width 64\n"
            "  vocabulary    512 tokens\n"
            "  context       4,096 tokens\n"
            "  dtypes        weights bf16, keys and values f32 (2.0 KiB for each token)\n"
            "  kernels       cpu.scalar\n"
            "  chat          no template: plain text only\n");
}

TEST_F(InfoCommands, ModelsPrintsJson) {
  EXPECT_EQ(Run({"models", "--json"}).out,
            R"({"models":[{"name":"tiny","architecture":"LlamaForCausalLM",)"
            R"("description":"A small model.","parameters":1234567,"layers":2,"hidden_size":64,)"
            R"("vocabulary":512,"max_context":4096,"weights_dtype":"bf16","kv_dtype":"f32",)"
            R"("kv_bytes_per_token":2048,"kernels":"cpu.scalar","has_chat_template":false,)"
            R"("end_of_text_ids":[1,2]}]})"
            "\n");
}

TEST_F(InfoCommands, ModelsShowsTheDefaultsOfSampling) {
  server_.SetModels({FromText<v1::Model>(R"(
      name: "a" has_chat_template: true default_sampling {
        temperature: 0.6 top_p: 0.9 top_k: 20 min_p: 0 repetition_penalty: 1.05 })")});
  EXPECT_THAT(Run({"models"}).out,
              ::testing::HasSubstr("  sampling      temperature 0.6, top_p 0.9, top_k 20, "
                                   "repetition_penalty 1.05, unless a request sets its own\n"));
  EXPECT_THAT(Run({"models", "--json"}).out,
              ::testing::HasSubstr(
                  R"("default_sampling":{"temperature":0.6,"top_p":0.9,"top_k":20,"min_p":0,)"
                  R"("repetition_penalty":1.05}})"));
  server_.SetModels({FromText<v1::Model>(R"(
      name: "b" default_sampling { temperature: 0 top_p: 1 repetition_penalty: 1 })")});
  EXPECT_THAT(Run({"models"}).out,
              ::testing::HasSubstr("  sampling      greedy, unless a request"));
}

TEST_F(InfoCommands, StatusShowsEveryRanksMemory) {
  EXPECT_EQ(
      Run({"status", "--verbose"}).out,
      absl::StrCat(
          "server    annulusd 0.1.0 at ", server_.address(),
          ", serving, up 3 min 3 s\n"
          "models    tiny\n"
          "attention strided:block=64,stride=8,local=4 for requests that name no policy\n"
          "requests  1 running (at most 64), 3 waiting (at most 256)\n"
          "health    good, last step 20 ms ago\n"
          "KV        37.5% of all pages in use\n"
          "ring      attention of 1, 64 rows at 3.12, 38.2 GFLOP/s a rank, alone 6, 76.5; a call "
          "costs as much as 80 keys, message 5.9 us, each further part 5.5 ns, nothing copied; "
          "measured at start in 31 ms\n"
          "transport addresses\n"
          "\n"
          "RANK  DEVICE  STATE           KV IN USE       KV  STEP BUFFER  WEIGHTS  ALL MEMORY\n"
          "   0  cpu     up     1.0 KiB of 4.0 KiB  4.0 KiB         16 B  2.0 KiB     6.0 KiB\n"
          "   1  cpu     DOWN       0 B of 4.0 KiB  4.0 KiB          0 B      0 B     4.0 KiB\n"));
  const std::string shortly = Run({"status"}).out;
  EXPECT_THAT(shortly,
              ::testing::HasSubstr("device    cpu, 2 ranks\nKV        37.5% of all pages in use\n\n"
                                   "RANK  STATE           KV IN USE  WEIGHTS  ALL MEMORY\n"
                                   "   0  up     1.0 KiB of 4.0 KiB  2.0 KiB     6.0 KiB\n"
                                   "   1  DOWN       0 B of 4.0 KiB      0 B     4.0 KiB\n"));
}

// What is promised to requests has nothing in it yet; what is kept for reuse can be had.
TEST_F(InfoCommands, StatusTellsAReserveFromMemoryInUse) {
  server_.SetLoad(FromText<v1::GetLoadResponse>(R"(
      kv_usage: 0.125
      ranks { rank: 0 device: "cpu" up: true kv_bytes_used: 1024 kv_bytes_total: 8192
              memory_bytes { key: "kv_full" value: 1024 } memory_bytes { key: "kv_reserved" value: 2048 }
              memory_bytes { key: "kv_cached" value: 1024 } memory_bytes { key: "kv_free" value: 4096 } })"));
  const std::string text = Run({"status"}).out;
  EXPECT_THAT(text, ::testing::HasSubstr("KV        12.5% of all pages in use, 25.0% reserved, "
                                         "12.5% cached, 50.0% free\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("1.0 KiB of 8.0 KiB"));
}

// On a terminal no line is longer than the terminal, and nothing but blanks is lost; in a pipe
// lines stay whole.
TEST_F(InfoCommands, FitsATerminal) {
  const auto without_blanks = [](std::string text) {
    text.erase(std::remove_if(text.begin(), text.end(), ::isspace), text.end());
    return text;
  };
  for (const char* command : {"status", "models"}) {
    const std::string piped = Run({command}, {.columns = 40}).out;
    EXPECT_EQ(piped, Run({command}).out);
    const std::string shown = Run({command}, {.out_is_terminal = true, .columns = 40}).out;
    for (const absl::string_view line : absl::StrSplit(shown, '\n')) EXPECT_LE(line.size(), 40);
    if (command == std::string("models")) {
      EXPECT_EQ(without_blanks(shown), without_blanks(piped));
    }
  }
  const std::string shown = Run({"status"}, {.out_is_terminal = true, .columns = 40}).out;
  EXPECT_THAT(shown, ::testing::HasSubstr("\n\nRANK        1\nSTATE       DOWN\n"));
}

TEST_F(InfoCommands, StatusDoesNotCallAModelThatIsLoadedBad) {
  server_.SetInfo(FromText<v1::GetServerInfoResponse>("state: SERVER_STATE_LOADING"));
  server_.SetLoad(v1::GetLoadResponse());
  const std::string text = Run({"status"}).out;
  EXPECT_THAT(text, ::testing::HasSubstr("models    none yet\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("health    not serving: the model is being loaded"));
  server_.SetInfo(FromText<v1::GetServerInfoResponse>(
      R"(state: SERVER_STATE_LOADING awaited: "1 of 2 ranks is missing")"));
  EXPECT_THAT(Run({"status"}).out,
              ::testing::HasSubstr("health    not serving: 1 of 2 ranks is missing\n"));
}

TEST_F(InfoCommands, StatusShowsWorkers) {
  EXPECT_THAT(Run({"status"}).out, ::testing::Not(::testing::HasSubstr("WORKER")));
  server_.SetLoad(FromText<v1::GetLoadResponse>(R"(
      ranks { rank: 0 device: "cpu" up: true } epoch: 3
      workers { name: "b" peer: "10.0.0.7:51034" first_rank: 1 ranks: 2 up: true
                silent_seconds: 0.12 exposed_seconds: 4.2 }
      workers { name: "c" peer: "10.0.0.8:40001" first_rank: 3 ranks: 1 silent_seconds: 183 })"));
  const std::string text = Run({"status"}).out;
  EXPECT_THAT(text, ::testing::HasSubstr("workers   2, epoch 3\n"));
  EXPECT_THAT(
      text, ::testing::HasSubstr("WORKER  PEER             RANKS  STATE      LAST BEAT  WAITED\n"
                                 "b       10.0.0.7:51034  1 to 2  up        120 ms ago  4.20 s\n"
                                 "c       10.0.0.8:40001       3  LOST   3 min 3 s ago    0 ms\n"));
  EXPECT_THAT(
      Run({"status", "--json"}).out,
      ::testing::HasSubstr(R"("workers":[{"name":"b","peer":"10.0.0.7:51034","first_rank":1,)"));
}

TEST_F(InfoCommands, StatusSaysWhatTheRingGoesOnWithout) {
  const std::string awaited = R"(awaited: "a host for rank 3")";
  server_.SetInfo(FromText<v1::GetServerInfoResponse>("state: SERVER_STATE_SERVING " + awaited));
  EXPECT_THAT(Run({"status"}).out, ::testing::HasSubstr(" ago; the ring goes on without a host for "
                                                        "rank 3\n"));
  server_.SetInfo(FromText<v1::GetServerInfoResponse>("state: SERVER_STATE_UNHEALTHY " + awaited));
  EXPECT_THAT(Run({"status"}).out,
              ::testing::HasSubstr("health    not serving: a host for rank 3\n"));
}

TEST_F(InfoCommands, StatusTellsAServerWithoutADeviceFromOneWithASickRank) {
  server_.SetInfo(FromText<v1::GetServerInfoResponse>("state: SERVER_STATE_UNHEALTHY"));
  server_.SetLoad(v1::GetLoadResponse());
  EXPECT_THAT(Run({"status"}).out, ::testing::HasSubstr("health    BAD, no device"));
  server_.SetLoad(FromText<v1::GetLoadResponse>("ranks { }"));
  EXPECT_THAT(Run({"status"}).out, ::testing::HasSubstr("health    BAD, last step"));
}

TEST_F(InfoCommands, StatusShowsALinkAndHidesRatesThatAreNotNeeded) {
  server_.SetLoad(FromText<v1::GetLoadResponse>(
      R"(exchange { link_bytes_per_second: 12.5e9 source: "read from a.json" })"));
  EXPECT_THAT(Run({"status", "--verbose"}).out,
              ::testing::HasSubstr("link 12.5 GB/s; read from a.json\n"));
  server_.SetLoad(FromText<v1::GetLoadResponse>(
      R"(exchange { attention_flops: 1 source: "not needed: there is only one rank" })"));
  EXPECT_THAT(Run({"status", "--verbose"}).out,
              ::testing::HasSubstr("ring      rates not needed: there is only one rank\n"));
  // While a model is being loaded nothing is known.
  server_.SetLoad(v1::GetLoadResponse());
  EXPECT_THAT(Run({"status", "--verbose"}).out, ::testing::Not(::testing::HasSubstr("ring ")));
}

TEST_F(InfoCommands, StatusShowsTheProcessMemoryAndNodes) {
  server_.SetLoad(FromText<v1::GetLoadResponse>(R"(
      memory { foreseen_bytes { key: "weights" value: 2048 } foreseen_bytes { key: "kv" value: 4096 }
               foreseen_bytes { key: "ring" value: 0 }
               resident_bytes: 5120 resident_most_bytes: 7168 }
      ranks { rank: 0 device: "cpu" up: true node: 0 } ranks { rank: 1 device: "cpu" up: true })"));
  const std::string text = Run({"status"}).out;
  EXPECT_THAT(text, ::testing::HasSubstr("memory    5.0 KiB resident, 7.0 KiB peak; predicted "
                                         "6.0 KiB: kv 4.0 KiB, weights 2.0 KiB\n"));
  EXPECT_THAT(text, ::testing::HasSubstr("   0  cpu, node 0  up "));
  EXPECT_THAT(text, ::testing::HasSubstr("   1  cpu          up "));
  const std::string json = Run({"status", "--json"}).out;
  EXPECT_THAT(json, ::testing::HasSubstr(
                        R"("memory":{"foreseen_bytes":{"kv":4096,"ring":0,"weights":2048},)"
                        R"("resident_bytes":5120,"resident_most_bytes":7168},)"));
  EXPECT_THAT(json, ::testing::HasSubstr(R"({"rank":0,"up":true,"node":0,"device":"cpu",)"));
  EXPECT_THAT(json, ::testing::HasSubstr(R"({"rank":1,"up":true,"device":"cpu",)"));
}

TEST_F(InfoCommands, StatusPrintsJson) {
  EXPECT_EQ(
      Run({"status", "--json"}).out,
      R"({"server":{"version":"0.1.0","state":"serving","uptime":183,"models":["tiny"],)"
      R"("ranks":2,"attention":"strided:block=64,stride=8,local=4","limits":{"max_message_bytes":1,"max_document_bytes":2,)"
      R"("max_stored_bytes":3,"max_documents":4,"max_running":64,"max_waiting":256},"awaited":""},)"
      R"("load":{"running":1,"waiting":3,"kv_usage":0.375,"seconds_since_step":0.02,)"
      R"("healthy":true,"ranks":[{"rank":0,"up":true,"device":"cpu",)"
      R"("memory_bytes":{"kv":4096,"step_buffer":16,"weights":2048},"kv_bytes_used":1024,)"
      R"("kv_bytes_total":4096},{"rank":1,"up":false,"device":"cpu",)"
      R"("memory_bytes":{"kv":4096,"step_buffer":0,"weights":0},"kv_bytes_used":0,"kv_bytes_total":4096}],)"
      R"("memory":{"foreseen_bytes":{},"resident_bytes":0,"resident_most_bytes":0},)"
      R"("exchange":{"attention_flops":3.825e+10,"attention":[)"
      R"({"rows":1,"flops":3.125e+09,"alone_flops":6e+09,"query_seconds":-2e-06},)"
      R"({"rows":64,"flops":3.825e+10,"alone_flops":7.65e+10,"query_seconds":0}],"call_keys":80,"link_bytes_per_second":0,)"
      R"("message_seconds":5.9e-06,"part_seconds":5.5e-09,)"
      R"("source":"measured at start in 31 ms"},"ring_transport":"addresses","workers":[],"epoch":0}})"
      "\n");
}

TEST_F(InfoCommands, FailuresHaveTheirExitCode) {
  server_.SetFailure(testing::MakeFailure(grpc::StatusCode::UNAUTHENTICATED, "who are you?"));
  for (const char* command : {"models", "status"}) {
    const CliResult result = Run({command});
    EXPECT_EQ(result.exit_code, 80);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err, "annulus: UNAUTHENTICATED: who are you?\n");
  }
}

TEST_F(InfoCommands, WatchShowsStatusUntilInterrupted) {
  Cancellation cancellation;
  std::thread user([&] {
    while (server_.load_requests() < 3) std::this_thread::yield();
    cancellation.Cancel();
  });
  const CliResult result =
      Run({"status", "--watch", "--interval", "0.1", "--json"}, {.cancellation = &cancellation});
  user.join();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_GE(std::count(result.out.begin(), result.out.end(), '\n'), 2);
}

TEST_F(InfoCommands, ARefusedCallIsOneJsonObject) {
  server_.SetFailure(testing::MakeFailure(grpc::StatusCode::NOT_FOUND, "no such model"));
  const CliResult result = Run({"models", "--json"});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(result.out, "{\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"no such model\"}}\n");
  EXPECT_EQ(Run({"models"}).out, "");
}

}  // namespace
}  // namespace annulus::client
