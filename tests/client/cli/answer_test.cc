#include "client/cli/ask/answer.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/client/cli/run_cli.h"
#include "tests/client/fake_server.h"

namespace annulus::client {
namespace {

Generation Story() {
  Generation generation;
  generation.text = "Once \"upon\"";
  generation.token_ids = {10, 11};
  generation.completion = testing::CompletionEvent(v1::FINISH_REASON_LENGTH, 2).completion();
  return generation;
}

TEST(AnswerJson, HasTheAgreedShape) {
  EXPECT_EQ(
      AnswerJson(Story(), /*interrupted=*/false),
      R"({"text":"Once \"upon\"","token_ids":[10,11],"finish_reason":"length",)"
      R"("usage":{"prompt_tokens":8,"completion_tokens":2,"cached_tokens":2,"computed_tokens":6,)"
      R"("reasoning_tokens":0},)"
      R"("timings":{"queue":0.5,"prefill":1,"time_to_first_token":1.5,"decode":2,"total":3.5,)"
      R"("longest_gap":0.25,"stalls":1,"ring_wait":0.5,"host":0.125,"preemptions":2,"recovered":0,"repaired":0},)"
      R"("attention":{"policy":"dense","density":1,"ring_degree":4,"steps_pass_kv":3,)"
      R"("steps_pass_q":5}})");
}

TEST(AnswerJson, HasLogprobsWhenTheyCame) {
  Generation generation = Story();
  v1::TokenLogprob logprob;
  logprob.set_token_id(10);
  logprob.set_logprob(-0.5);
  logprob.set_text(" a\n");
  logprob.set_bytes(" a\n");
  logprob.add_alternatives()->set_token_id(7);
  logprob.mutable_alternatives(0)->set_text("\uFFFD");
  logprob.mutable_alternatives(0)->set_bytes("\xE7");
  generation.logprobs = {logprob};
  const std::string json = AnswerJson(generation, /*interrupted=*/false);
  EXPECT_TRUE(
      json.ends_with(R"(,"logprobs":[{"token_id":10,"text":" a\n","bytes":"IGEK","logprob":-0.5,)"
                     "\"alternatives\":[{\"token_id\":7,\"text\":\"\uFFFD\",\"bytes\":\"5w==\","
                     "\"logprob\":0}]}]}"))
      << json;
}

TEST(AnswerJson, OfABrokenAnswerSaysWhatIsKnown) {
  Generation generation = Story();
  generation.completion.reset();
  generation.progress = testing::ProgressEvent(6, 8).prompt_progress();
  EXPECT_EQ(AnswerJson(generation, /*interrupted=*/true),
            R"({"text":"Once \"upon\"","token_ids":[10,11],"finish_reason":"cancelled",)"
            R"("usage":{"prompt_tokens":8,"completion_tokens":2,"cached_tokens":2,)"
            R"("reasoning_tokens":0},)"
            R"("timings":null,"attention":null})");
  EXPECT_NE(AnswerJson(generation, /*interrupted=*/false).find(R"("finish_reason":"error")"),
            std::string::npos);
}

// Everything that a server can tell, with the names, types and order that scripts know.
TEST(AnswerJson, HasEveryMember) {
  Generation generation;
  generation.completion.emplace();
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(usage { prompt_tokens: 9007199254740993 completion_tokens: 2 cached_tokens: 3
                 restored_tokens: 2 host_tokens: 1 checked_position: 0 drafted_tokens: 4
                 reasoning_tokens: 1
                 cache_miss { reason: REASON_EVICTED position: 3 } }
         attention { policy: "a<b>" choice: "auto: \"\t\351\235\231\"" density: 0.1 layer_steps: 2
                     estimated_coverage: 0 inherited_coverage: 0.25 contract_met: true
                     estimate_seconds: 1e-7 attend_seconds: 38.25e9 estimate_wall_seconds: 0.5
                     attend_wall_seconds: nan details { layer: 1 } }
         rope_factors: "long"
         origin { seed: 18446744073709551615 ring_degree: 2 kernels: "cpu.avx2" digest: "0a" })",
      &*generation.completion));
  EXPECT_EQ(AnswerJson(generation, /*interrupted=*/false),
            R"({"text":"","token_ids":[],"finish_reason":"unknown","usage":)"
            R"({"prompt_tokens":9007199254740993,"completion_tokens":2,"cached_tokens":3,)"
            R"("restored_tokens":2,"host_tokens":1,"checked_position":0,)"
            R"("computed_tokens":9007199254740990,"cache_miss":{"reason":"evicted","position":3},)"
            R"("drafted_tokens":4,"accepted_tokens":0,"reasoning_tokens":1},)"
            R"("timings":{"queue":0,"prefill":0,"time_to_first_token":0,"decode":0,"total":0,)"
            R"("longest_gap":0,"stalls":0,"ring_wait":0,"host":0,"preemptions":0,)"
            R"("recovered":0,"repaired":0},)"
            R"("attention":{"policy":"a<b>","choice":"auto: \"\u0009静\"","density":0.1,)"
            R"("ring_degree":0,"steps_pass_kv":0,"steps_pass_q":0,"estimated_coverage":0,)"
            R"("inherited_coverage":0.25,"layer_steps":2,"layers_raised":0,"layers_dense":0,)"
            R"("contract_met":true,"estimate_seconds":1e-07,"attend_seconds":3.825e+10,)"
            R"("estimate_wall_seconds":0.5,"attend_wall_seconds":null},"rope_factors":"long",)"
            R"("origin":{"seed":"18446744073709551615","ring_degree":2,"kernels":"cpu.avx2",)"
            R"("digest":"0a"}})");
  generation.completion->mutable_origin()->clear_digest();
  EXPECT_THAT(AnswerJson(generation, false), ::testing::EndsWith(R"("kernels":"cpu.avx2"}})"));
}

TEST(TimingsText, ReadsWell) {
  EXPECT_EQ(
      TimingsText(testing::CompletionEvent(v1::FINISH_REASON_STOP, 5).completion()),
      "tokens     prompt 8 (2 reused; 6 computed), answer 5\n"
      "time       first token 1.50 s, queue 500 ms, prefill 1.00 s (6.00 tok/s), decode 2.00 s "
      "(2.00 tok/s), total 3.50 s\n"
      "steps      waiting in the ring 500 ms, planning and processing results 125 ms\n"
      "gaps       longest 250 ms between two tokens, 1 gap over the server's stall budget; gave "
      "its memory to "
      "others 2 times\n"
      "attention  dense, density 1, ring of 4, steps 3 pass-KV and 5 pass-Q\n");
}

v1::Completion SparseCompletion() {
  v1::Completion completion = testing::CompletionEvent(v1::FINISH_REASON_STOP, 5).completion();
  v1::AttentionReport& attention = *completion.mutable_attention();
  attention.set_policy("adaptive:coverage=0.95");
  attention.set_density(0.123456);
  attention.set_estimated_coverage(0.97);
  attention.mutable_sampled_coverage()->set_mean(0.96);
  attention.mutable_sampled_coverage()->set_minimum(0.95);
  attention.mutable_sampled_coverage()->set_first_percentile(0.9);
  attention.mutable_sampled_coverage()->set_rows(1600);
  attention.set_layer_steps(24);
  attention.set_layers_raised(2);
  attention.set_layers_dense(1);
  attention.set_inherited_coverage(0.5);
  return completion;
}

TEST(TimingsText, TellsOfCoverage) {
  v1::Completion completion = SparseCompletion();
  EXPECT_THAT(
      TimingsText(completion),
      ::testing::EndsWith(
          "attention  adaptive:coverage=0.95, density 0.123, ring of 4, steps 3 pass-KV and 5 "
          "pass-Q\n"
          "coverage   0.96 of 1,600 sampled rows, lowest 0.95 of a layer, estimated 0.97, "
          "inherited 0.5; of 24 layers and steps 2 raised, 1 dense; contract NOT MET\n"));
  completion.mutable_attention()->clear_sampled_coverage();
  completion.mutable_attention()->set_contract_met(true);
  EXPECT_THAT(TimingsText(completion), ::testing::HasSubstr("no row was sampled"));
  EXPECT_THAT(TimingsText(completion), ::testing::EndsWith("; contract met\n"));
  completion.mutable_attention()->set_policy("adaptive:tau=0.95");
  EXPECT_THAT(TimingsText(completion), ::testing::EndsWith("; no contract\n"));
}

TEST(AnswerJson, TellsOfCoverage) {
  Generation generation;
  generation.completion = SparseCompletion();
  EXPECT_THAT(AnswerJson(generation, false),
              ::testing::HasSubstr(
                  R"("estimated_coverage":0.97,"sampled_coverage":{"mean":0.96,"minimum":0.95,)"
                  R"("first_percentile":0.9,"rows":1600},"inherited_coverage":0.5,)"
                  R"("layer_steps":24,"layers_raised":2,"layers_dense":1,"contract_met":false,)"
                  R"("estimate_seconds":0,"attend_seconds":0,)"
                  R"("estimate_wall_seconds":0,"attend_wall_seconds":0})"));
}

// Of models whose rotary frequencies depend on the prompt's length.
TEST(AnswerJson, TellsWhichRopeFactors) {
  Generation generation;
  generation.completion.emplace();
  EXPECT_THAT(AnswerJson(generation, false), ::testing::Not(::testing::HasSubstr("rope")));
  EXPECT_THAT(TimingsText(*generation.completion), ::testing::Not(::testing::HasSubstr("rope")));
  generation.completion->set_rope_factors("long");
  EXPECT_THAT(AnswerJson(generation, false), ::testing::HasSubstr(R"("rope_factors":"long")"));
  EXPECT_THAT(TimingsText(*generation.completion),
              ::testing::HasSubstr("rope       long factors, by the prompt length\n"));
}

TEST(TimingsText, BearsEmptyMessages) {
  EXPECT_THAT(TimingsText(v1::Completion()),
              ::testing::StartsWith("tokens     prompt 0 (0 reused; 0 computed), answer 0\n"));
}

// Why no more of the prompt was reused: one line for people, two members for programs.
TEST(Reuse, IsExplained) {
  Generation generation = Story();
  v1::Usage& usage = *generation.completion->mutable_usage();
  usage.set_prompt_tokens(5000);
  usage.set_cached_tokens(4096);
  usage.set_restored_tokens(1024);
  EXPECT_THAT(TimingsText(*generation.completion),
              ::testing::StartsWith("tokens     prompt 5,000 (4,096 reused, 1,024 of them restored "
                                    "from disk; 904 computed), answer 2\ntime "));
  usage.set_host_tokens(1024);
  EXPECT_THAT(TimingsText(*generation.completion),
              ::testing::HasSubstr("1,024 of them restored from host memory; 904 computed"));
  usage.set_host_tokens(768);
  EXPECT_THAT(
      TimingsText(*generation.completion),
      ::testing::HasSubstr("1,024 of them restored: 768 from host memory, 256 from disk; 904"));
  using Miss = v1::CacheMiss;
  usage.mutable_cache_miss()->set_position(4100);
  for (const auto& [reason, line, name] :
       std::vector<std::tuple<Miss::Reason, std::string, std::string>>{
           {Miss::REASON_UNSPECIFIED,
            "reuse      ends at token 4,100 (the server tells why only to callers with a token or "
            "certificate)\n",
            R"({"reason":"unknown","position":4100})"},
           {Miss::REASON_OTHER_TOKENS, "the most similar cached prompt differs at token 4,100\n",
            R"({"reason":"other_tokens","position":4100})"},
           {Miss::REASON_EVICTED, "the cached part from token 4,100 on was evicted\n",
            R"({"reason":"evicted","position":4100})"},
           {Miss::REASON_OTHER_ATTENTION,
            "from token 4,100 on it is cached for another attention policy\n",
            R"({"reason":"other_attention","position":4100})"},
           {Miss::REASON_OTHER_MODEL,
            "from token 4,100 on it is on disk for another model, build or number format\n",
            R"({"reason":"other_model","position":4100})"},
           {Miss::REASON_DISK_SLOWER,
            "from token 4,100 on, computing is faster than reading it from the cache\n",
            R"({"reason":"disk_slower","position":4100})"},
           {Miss::REASON_DISK_REFUSED,
            "from token 4,100 on, cached pages failed a checksum or differed from recomputed "
            "ones\n",
            R"({"reason":"disk_refused","position":4100})"},
           {Miss::REASON_IGNORED, "the request asked to compute the whole prompt\n",
            R"({"reason":"ignored","position":4100})"}}) {
    usage.mutable_cache_miss()->set_reason(reason);
    EXPECT_THAT(TimingsText(*generation.completion), ::testing::HasSubstr(line));
    EXPECT_THAT(
        AnswerJson(generation, false),
        ::testing::HasSubstr(R"("cached_tokens":4096,"restored_tokens":1024,"host_tokens":768,)"
                             R"("computed_tokens":904,"cache_miss":)" +
                             name));
  }
}

TEST(JsonLines, TellEachEventAsItComes) {
  testing::FakeServer server;
  server.SetReply(testing::StoryReply());
  const testing::CliResult result = testing::RunCliInProcess(
      {"complete", "Tell me", "--json-lines", "--server", server.address()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<std::string> lines = absl::StrSplit(result.out, '\n');
  ASSERT_EQ(lines.size(), 7) << result.out;
  EXPECT_EQ(lines[0], R"({"event":"queued","position":1})");
  EXPECT_EQ(lines[1],
            R"({"event":"progress","total":8,"cached":2,"processed":4,"elapsed":0.5,"eta":0.25})");
  EXPECT_EQ(lines[3], R"({"event":"delta","text":"Once upon","token_ids":[10,11]})");
  EXPECT_THAT(lines[5], ::testing::StartsWith("{\"event\":\"end\",\"text\":\"Once upon a time\","));
  EXPECT_EQ(lines[6], "");
}

}  // namespace
}  // namespace annulus::client
