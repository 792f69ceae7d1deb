#include "client/cli/answer.h"

#include <gtest/gtest.h>

#include "tests/client/fake_server.h"

namespace annulus {
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
      R"("usage":{"prompt_tokens":8,"completion_tokens":2,"cached_tokens":2},)"
      R"("timings":{"queue":0.5,"prefill":1,"time_to_first_token":1.5,"decode":2,"total":3.5},)"
      R"("attention":{"policy":"dense","density":1,"ring_degree":4,"steps_pass_kv":3,)"
      R"("steps_pass_q":5}})");
}

TEST(AnswerJson, HasLogprobsWhenTheyCame) {
  Generation generation = Story();
  v1::TokenLogprob logprob;
  logprob.set_token_id(10);
  logprob.set_logprob(-0.5);
  logprob.add_alternatives()->set_token_id(7);
  generation.logprobs = {logprob};
  const std::string json = AnswerJson(generation, /*interrupted=*/false);
  EXPECT_TRUE(json.ends_with(
      R"(,"logprobs":[{"token_id":10,"logprob":-0.5,"alternatives":[{"token_id":7,"logprob":0}]}]})"))
      << json;
}

TEST(AnswerJson, OfABrokenAnswerSaysWhatIsKnown) {
  Generation generation = Story();
  generation.completion.reset();
  generation.progress = testing::ProgressEvent(6, 8).prompt_progress();
  EXPECT_EQ(AnswerJson(generation, /*interrupted=*/true),
            R"({"text":"Once \"upon\"","token_ids":[10,11],"finish_reason":"cancelled",)"
            R"("usage":{"prompt_tokens":8,"completion_tokens":2,"cached_tokens":2},)"
            R"("timings":null,"attention":null})");
  EXPECT_NE(AnswerJson(generation, /*interrupted=*/false).find(R"("finish_reason":"error")"),
            std::string::npos);
}

TEST(TimingsText, ReadsWell) {
  EXPECT_EQ(
      TimingsText(testing::CompletionEvent(v1::FINISH_REASON_STOP, 5).completion()),
      "tokens     prompt 8 (2 cached), answer 5\n"
      "time       first token 1.50 s, queue 500 ms, prefill 1.00 s (6.00 tok/s), decode 2.00 s "
      "(2.00 tok/s), total 3.50 s\n"
      "attention  dense, density 1, ring of 4, steps 3 pass-KV and 5 pass-Q\n");
}

TEST(TimingsText, BearsEmptyMessages) {
  EXPECT_EQ(TimingsText(v1::Completion()).substr(0, 40),
            "tokens     prompt 0 (0 cached), answer 0");
}

}  // namespace
}  // namespace annulus
