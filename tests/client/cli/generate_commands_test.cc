#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "client/cli/cli.h"
#include "google/rpc/error_details.pb.h"
#include "tests/client/cli/generate_test.h"

namespace annulus::client {
namespace {

using testing::CliInput;
using testing::CliResult;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using GenerateCommands = testing::GenerateTest;

TEST_F(GenerateCommands, CompletePrintsTheAnswer) {
  const CliResult result = Run({"complete", "Tell me"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "Once upon a time\n");
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(server_.specs().at(0).text(), "Tell me");
}

TEST_F(GenerateCommands, ShowPromptAsksNothing) {
  server_.AddDocument("stored", "text");
  EXPECT_EQ(Run({"ask", "stored", "Who?", "--show-prompt"}).out, "stored\nWho?\n");
  EXPECT_EQ(Run({"ask", "stored", "Who?", "--show-prompt", "--json"}).out,
            "{\"text\":\"stored\\nWho?\",\"token_ids\":[7,8],\"system_folded\":false}\n");
  const CliResult folded = Run({"ask", "stored", "Who?", "-s", "Be brief.", "--show-prompt"});
  EXPECT_THAT(folded.err, HasSubstr("refuses a system message: the server puts it in front of"));
  EXPECT_TRUE(server_.specs().empty());
  server_.SetFailure({grpc::StatusCode::UNAVAILABLE, "away"});
  EXPECT_EQ(Run({"ask", "stored", "Who?", "--show-prompt"}).exit_code,
            64 + grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GenerateCommands, CompletePrintsJson) {
  const CliResult result = Run({"complete", "Tell me", "--json"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(
      result.out,
      R"({"text":"Once upon a time","token_ids":[10,11,12,13,14],"finish_reason":"stop",)"
      R"("usage":{"prompt_tokens":8,"completion_tokens":5,"cached_tokens":2,"computed_tokens":6,)"
      R"("reasoning_tokens":0},)"
      R"("timings":{"queue":0.5,"prefill":1,"time_to_first_token":1.5,"decode":2,"total":3.5,)"
      R"("longest_gap":0.25,"stalls":1,"ring_wait":0.5,"host":0.125,"preemptions":2,"recovered":0,"repaired":0},)"
      R"("attention":{"policy":"dense","density":1,"ring_degree":4,"steps_pass_kv":3,)"
      R"("steps_pass_q":5}})"
      "\n");
}

// The answer stays alone on standard output.
TEST_F(GenerateCommands, LogprobsAreATableOnStandardError) {
  FakeServer::Reply reply = testing::StoryReply();
  v1::Delta& delta = *reply.events[2].mutable_delta();
  v1::TokenLogprob& token = *delta.add_logprobs();
  token.set_token_id(10);
  token.set_text("Once");
  token.set_bytes("Once");
  token.set_logprob(-0.25);
  for (const auto& [text, logprob] : {std::pair("Once", -0.25F), std::pair("\n", -1.5F)}) {
    v1::LogprobAlternative& alternative = *token.add_alternatives();
    alternative.set_text(text);
    alternative.set_logprob(logprob);
  }
  v1::TokenLogprob& other = *delta.add_logprobs();
  other.set_token_id(11);
  other.set_text(" upon");
  other.set_logprob(-2);
  server_.SetReply(reply);
  CliResult result = Run({"complete", "Tell me", "--logprobs", "2"});
  EXPECT_EQ(result.out, "Once upon a time\n");
  EXPECT_EQ(result.err,
            "TOKEN  TEXT     LOGPROB  ALTERNATIVES\n"
            "   10  \"Once\"    -0.250  \"Once\" -0.250, \"\\n\" -1.500\n"
            "   11  \" upon\"   -2.000\n");
  result = Run({"complete", "Tell me", "--logprobs", "2", "--json-lines"});
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              HasSubstr(R"({"event":"delta","text":"","token_ids":[],"logprobs":[)"
                        R"({"token_id":10,"text":"Once","bytes":"T25jZQ==","logprob":-0.25,)"
                        R"("alternatives":[)"
                        R"({"token_id":0,"text":"Once","bytes":"","logprob":-0.25},)"
                        R"({"token_id":0,"text":"\n","bytes":"","logprob":-1.5}]},)"
                        R"({"token_id":11,"text":" upon","bytes":"","logprob":-2,)"
                        R"("alternatives":[]}]})"));
}

TEST_F(GenerateCommands, LogprobsOfThePromptStandBeforeThoseOfTheAnswer) {
  FakeServer::Reply reply = testing::StoryReply();
  v1::Delta& delta = *reply.events[2].mutable_delta();
  v1::TokenLogprob& asked = *delta.add_prompt_logprobs();
  asked.set_token_id(5);
  asked.set_text(" me");
  asked.set_logprob(-3);
  v1::TokenLogprob& answered = *delta.add_logprobs();
  answered.set_token_id(10);
  answered.set_text("Once");
  answered.set_logprob(-0.25);
  server_.SetReply(reply);
  CliResult result = Run({"complete", "Tell me", "--logprobs", "0", "--prompt-logprobs", "3"});
  EXPECT_EQ(server_.specs().back().sampling().prompt_logprobs(), 3);
  EXPECT_EQ(result.out, "Once upon a time\n");
  EXPECT_EQ(result.err,
            "TOKEN  TEXT   LOGPROB  ALTERNATIVES\n"
            "    5  \" me\"   -3.000\n"
            "TOKEN  TEXT    LOGPROB  ALTERNATIVES\n"
            "   10  \"Once\"   -0.250\n");
  result = Run({"complete", "Tell me", "--prompt-logprobs", "3", "--json"});
  EXPECT_THAT(result.out,
              HasSubstr(R"(,"prompt_logprobs":[{"token_id":5,"text":" me","bytes":"",)"
                        R"("logprob":-3,"alternatives":[]}],"logprobs":[{"token_id":10,)"));
}

TEST_F(GenerateCommands, FlagsBecomeFields) {
  const CliResult result = Run({"complete",
                                "x",
                                "--model",
                                "m",
                                "--request-id=r1",
                                "--priority=-1",
                                "--max-tokens",
                                "64",
                                "--min-tokens",
                                "2",
                                "--temperature",
                                "0",
                                "--top-p",
                                "0.5",
                                "--top-k",
                                "3",
                                "--min-p",
                                "0.25",
                                "--frequency-penalty",
                                "-1.5",
                                "--presence-penalty=-0.5",
                                "--repetition-penalty",
                                "1.25",
                                "--seed",
                                "18446744073709551615",
                                "--stop",
                                "\\n",
                                "--stop",
                                "[a,b]",
                                "--stop-token-ids",
                                "5,6",
                                "--stop-token-ids",
                                "7",
                                "--ignore-eos",
                                "--logprobs",
                                "3",
                                "--logit-bias",
                                "42:-1.5",
                                "--logit-bias",
                                "7:100",
                                "--attention",
                                "window:window=512,sinks=0",
                                "--coverage",
                                "0.75"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  v1::GenerationSpec expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      R"(model: "m" request_id: "r1" priority: -1 text: "x" 
         attention { policy: "window:window=512,sinks=0" coverage: 0.75 }
         sampling {
           max_tokens: 64 min_tokens: 2 temperature: 0 top_p: 0.5 top_k: 3 min_p: 0.25
           frequency_penalty: -1.5 presence_penalty: -0.5 repetition_penalty: 1.25
           seed: 18446744073709551615 stop: "\n" stop: "[a,b]"
           stop_token_ids: [5, 6, 7] ignore_eos: true logprobs: 3
           logit_bias { key: 42 value: -1.5 } logit_bias { key: 7 value: 100 }
         })",
      &expected));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(server_.specs().at(0), expected))
      << server_.specs().at(0).DebugString();
}

TEST_F(GenerateCommands, SpeculateIsPartOfTheRequest) {
  ASSERT_EQ(Run({"complete", "x", "--speculate", "ngram"}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().speculation(), v1::SPECULATION_NGRAM);
  ASSERT_EQ(Run({"complete", "x", "--speculate=off"}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().speculation(), v1::SPECULATION_OFF);
  EXPECT_EQ(Run({"complete", "x", "--speculate", "sometimes"}).exit_code, 2);
  EXPECT_EQ(server_.specs().size(), 2u);
}

TEST_F(GenerateCommands, AbsentFlagsLeaveFieldsAbsent) {
  ASSERT_EQ(Run({"complete", "x"}).exit_code, 0);
  EXPECT_EQ(server_.specs().at(0).sampling().ByteSizeLong(), 0u);
  EXPECT_FALSE(server_.specs().at(0).has_request_id());
  EXPECT_FALSE(server_.specs().at(0).has_attention());
  EXPECT_EQ(server_.specs().at(0).speculation(), v1::SPECULATION_UNSPECIFIED);
}

TEST_F(GenerateCommands, PromptComesFromStandardInput) {
  EXPECT_EQ(Run({"complete"}, {.in = "from a pipe\n"}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().text(), "from a pipe\n");
  EXPECT_EQ(Run({"complete", "-"}, {.in = "typed", .in_is_terminal = true}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().text(), "typed");

  const CliResult result = Run({"complete"}, {.in_is_terminal = true});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("PROMPT is missing"));
}

TEST_F(GenerateCommands, InvalidUtf8IsMisuse) {
  EXPECT_EQ(Run({"complete", "a\xC3"}).exit_code, 2);
  EXPECT_EQ(Run({"complete"}, {.in = "a\xC3"}).exit_code, 2);
  EXPECT_EQ(Run({"complete", "x", "--stop", "\xC3"}).exit_code, 2);
  EXPECT_TRUE(server_.specs().empty());
}

TEST_F(GenerateCommands, ShortFlagsAreThoseOfLongNames) {
  ASSERT_EQ(
      Run({"ask", Write("a", "abc"), "Who?", "-m", "m", "-t", "0.5", "-n", "7", "-s", "Be brief."})
          .exit_code,
      0);
  const v1::GenerationSpec asked = server_.specs().back();
  EXPECT_EQ(asked.model(), "m");
  EXPECT_FLOAT_EQ(asked.sampling().temperature(), 0.5);
  EXPECT_EQ(asked.sampling().max_tokens(), 7);
  ASSERT_EQ(asked.messages().messages_size(), 2);
  EXPECT_EQ(asked.messages().messages(0).role(), "system");
  EXPECT_EQ(asked.messages().messages(0).content(), "Be brief.");
  EXPECT_EQ(asked.messages().messages(1).content(), "Who?");
}

TEST_F(GenerateCommands, AnswersGoToAFile) {
  const auto read = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const std::string path = Write("answer", "what was there before is gone");
  const CliResult result = Run({"complete", "x", "-o", path});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(read(path), "Once upon a time\n");
  ASSERT_EQ(Run({"complete", "x", "-o", path, "--json"}).out, "");
  EXPECT_THAT(read(path), StartsWith(R"({"text":"Once upon a time")"));

  server_.SetReply({.events = {testing::DeltaEvent("half", {1})},
                    .status = grpc::Status(grpc::StatusCode::ABORTED, "a rank failed")});
  EXPECT_EQ(Run({"complete", "x", "-o", path}).exit_code, 64 + grpc::StatusCode::ABORTED);
  EXPECT_EQ(read(path), "half\n");
  const size_t asked = server_.specs().size();
  EXPECT_EQ(Run({"complete", "x", "-o", folder_ / "no" / "such"}).exit_code, 1);
  EXPECT_EQ(server_.specs().size(), asked) << "found out before it is asked";
}

TEST_F(GenerateCommands, QuestionsTakeTheLikeliestTokensUnlessSomebodySaysOtherwise) {
  const std::string file = Write("a.txt", "abc");
  const auto temperature = [&](std::vector<std::string> arguments) -> std::optional<float> {
    EXPECT_EQ(Run(std::move(arguments)).exit_code, 0);
    const v1::SamplingParams sampling = server_.specs().back().sampling();
    return sampling.has_temperature() ? std::optional(sampling.temperature()) : std::nullopt;
  };
  v1::Model model;
  v1::SamplingParams& defaults = *model.mutable_default_sampling();
  defaults.set_temperature(1);
  defaults.set_top_p(1);
  server_.SetModels({model});
  EXPECT_EQ(temperature({"ask", file, "Why?"}), 0);
  EXPECT_EQ(temperature({"ask", file, "Why?", "-t", "0.5"}), 0.5f);
  EXPECT_EQ(temperature({"ask", file, "Why?", "--seed", "3"}), std::nullopt);
  EXPECT_EQ(temperature({"complete", "Once"}), std::nullopt);
  defaults.set_temperature(0.6f);  // the publisher's word
  server_.SetModels({model});
  EXPECT_EQ(temperature({"ask", file, "Why?"}), std::nullopt);
}

TEST_F(GenerateCommands, ADemonstrationModelSaysThatItIsOne) {
  v1::Model model;
  model.set_name("recall");
  model.set_architecture("builtin:recall");
  server_.SetModels({model});
  const CliResult result = Run({"ask", Write("abc", "abc"), "Who?"});
  EXPECT_EQ(result.out, "Once upon a time\n");
  EXPECT_THAT(result.err, HasSubstr("recall is a demonstration model"));
  EXPECT_THAT(Run({"complete", "x", "--json"}).err, HasSubstr("demonstration"));
  EXPECT_EQ(Run({"complete", "x", "--quiet"}).err, "");
}

TEST_F(GenerateCommands, RefusedRequestsAreExplained) {
  google::rpc::BadRequest bad;
  bad.add_field_violations()->set_field("spec.sampling.temperature");
  bad.mutable_field_violations(0)->set_description("1.5 is above 1");
  server_.SetReply({.status = testing::MakeFailure(grpc::StatusCode::INVALID_ARGUMENT,
                                                   "a field is wrong", {&bad})});
  const CliResult result = Run({"complete", "x", "--temperature", "1.5"});
  EXPECT_EQ(result.exit_code, 67);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(
      result.err,
      "annulus: INVALID_ARGUMENT: a field is wrong\n  field: --temperature: 1.5 is above 1\n");
}

TEST_F(GenerateCommands, AFailureKeepsWhatCameBefore) {
  server_.SetReply({.events = {testing::DeltaEvent("half", {1})},
                    .status = grpc::Status(grpc::StatusCode::ABORTED, "a rank failed")});
  CliResult result = Run({"complete", "x"});
  EXPECT_EQ(result.exit_code, 64 + grpc::StatusCode::ABORTED);
  EXPECT_EQ(result.out, "half\n");
  result = Run({"complete", "x", "--json"});
  EXPECT_THAT(result.out, HasSubstr(R"("text":"half","token_ids":[1],"finish_reason":"error")"));
}

TEST_F(GenerateCommands, AnInterruptionKeepsWhatCameBefore) {
  server_.SetReply({.events = {testing::ProgressEvent(8, 8), testing::DeltaEvent("half", {1})},
                    .wait_for_cancel = true});
  Cancellation cancellation;
  std::thread interrupter([&] {
    EXPECT_TRUE(server_.WaitForGeneration());
    EXPECT_TRUE(cancellation.Cancel());
  });
  const CliResult result = Run({"complete", "x", "--json"}, {.cancellation = &cancellation});
  interrupter.join();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_EQ(result.err, "annulus: interrupted\n");
  // Whether the text arrived before the cancellation is a race; the process test waits for it.
  EXPECT_THAT(result.out, ::testing::AnyOf(HasSubstr(R"("finish_reason":"cancelled")"),
                                           HasSubstr(R"("error":{"code":"CANCELLED")")));
}

TEST_F(GenerateCommands, AnswersEndInOneNewline) {
  server_.SetReply({.events = {testing::DeltaEvent("line\n", {1}),
                               testing::CompletionEvent(v1::FINISH_REASON_STOP, 1)}});
  EXPECT_EQ(Run({"complete", "x"}).out, "line\n");
  server_.SetReply({.events = {testing::CompletionEvent(v1::FINISH_REASON_STOP, 0)}});
  EXPECT_EQ(Run({"complete", "x"}).out, "\n");
}

TEST_F(GenerateCommands, CutAnswersAreRemarkedUnlessAskedFor) {
  server_.SetReply({.events = {testing::DeltaEvent("a", {1}),
                               testing::CompletionEvent(v1::FINISH_REASON_LENGTH, 1)}});
  EXPECT_THAT(Run({"complete", "x"}).err, HasSubstr("--max-tokens allows more"));
  EXPECT_EQ(Run({"complete", "x", "--quiet"}).err, "");
  EXPECT_EQ(Run({"complete", "x", "--max-tokens", "1"}).err, "");
}

TEST_F(GenerateCommands, TheFormOfTheAnswerGoesToTheServer) {
  const std::string schema = Write("schema.json", R"({"type":"object"})");
  EXPECT_EQ(Run({"ask", Write("abc", "abc"), "x", "--json-schema", schema}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().output().json_schema(), R"({"type":"object"})");
  EXPECT_EQ(Run({"complete", "x", "--regex", "[a-z]+, \\d"}).exit_code, 0);
  EXPECT_EQ(server_.specs().back().output().regex(), "[a-z]+, \\d");
  EXPECT_EQ(Run({"complete", "x", "--choice", "yes, it is", "--choice", "no"}).exit_code, 0);
  const v1::GenerationSpec chosen = server_.specs().back();
  EXPECT_THAT(chosen.output().choices().texts(), ::testing::ElementsAre("yes, it is", "no"));
  EXPECT_EQ(Run({"complete", "x"}).exit_code, 0);
  EXPECT_FALSE(server_.specs().back().has_output());
  const size_t asked = server_.specs().size();
  EXPECT_NE(Run({"complete", "x", "--regex", "a", "--choice", "b"}).exit_code, 0);
  const CliResult absent = Run({"complete", "x", "--json-schema", folder_ / "none.json"});
  EXPECT_NE(absent.exit_code, 0);
  EXPECT_THAT(absent.err, HasSubstr("none.json"));
  const CliResult binary = Run({"complete", "x", "--json-schema", Write("bad.json", "\xff")});
  EXPECT_THAT(binary.err, HasSubstr("not valid UTF-8"));
  EXPECT_EQ(server_.specs().size(), asked);
}

TEST_F(GenerateCommands, WhatIsLessThanTheFormOrTheLeastLengthIsRemarked) {
  auto end = testing::CompletionEvent(v1::FINISH_REASON_LENGTH, 1);
  server_.SetReply({.events = {testing::DeltaEvent("ye", {1}), end}});
  const CliResult cut = Run({"complete", "x", "--choice", "yes", "--max-tokens", "1"});
  EXPECT_THAT(cut.err, HasSubstr("so it is incomplete; --max-tokens allows"));
  end.mutable_completion()->set_finish_reason(v1::FINISH_REASON_STOP);
  end.mutable_completion()->set_output_below_min_tokens(true);
  server_.SetReply({.events = {testing::DeltaEvent("yes", {1}), end}});
  EXPECT_THAT(Run({"complete", "x", "--choice", "yes", "--min-tokens", "9"}).err,
              HasSubstr("fewer than --min-tokens"));
}

TEST_F(GenerateCommands, TimingsGoToStandardError) {
  const CliResult result = Run({"complete", "x", "--timings"});
  EXPECT_EQ(result.out, "Once upon a time\n");
  EXPECT_THAT(result.err, HasSubstr("first token 1.50 s"));
  EXPECT_THAT(result.err, HasSubstr("gaps       longest 250 ms between two tokens, 1 gap over the "
                                    "server's stall budget; gave its memory to others 2 times\n"));
}

TEST_F(GenerateCommands, ProgressIsABarOnATerminalAndWhenAlways) {
  const std::string path = Write("abc", "abc");
  const CliResult terminal =
      Run({"ask", path, "x"}, {.out_is_terminal = true, .err_is_terminal = true});
  EXPECT_THAT(terminal.err, HasSubstr("Uploading"));
  EXPECT_THAT(terminal.err, HasSubstr("Reading    ["));
  EXPECT_THAT(terminal.err, Not(HasSubstr("Answering"))) << "it would garble the answer";
  EXPECT_TRUE(terminal.err.ends_with("\r\x1b[K")) << "the bar is taken away";

  const CliResult always = Run({"ask", path, "x", "--progress=always"});
  EXPECT_THAT(always.err, HasSubstr("Answering"));
  EXPECT_EQ(always.out, "Once upon a time\n");

  const CliInput on_terminal{.err_is_terminal = true};
  EXPECT_EQ(Run({"ask", path, "x", "--progress=never"}, on_terminal).err, "");
  EXPECT_EQ(Run({"ask", path, "x", "--quiet"}, on_terminal).err, "");
  // One that cannot redraw a line gets lines, for which this is too quick.
  EXPECT_EQ(
      Run({"ask", path, "x"}, {.err_is_terminal = true, .environment = {{"TERM", "dumb"}}}).err,
      "");
}

TEST_F(GenerateCommands, ControlCharactersReachFilesButNotTerminals) {
  server_.SetReply({.events = {testing::DeltaEvent("\x1b[2J", {1}),
                               testing::CompletionEvent(v1::FINISH_REASON_STOP, 1)}});
  EXPECT_EQ(Run({"complete", "x"}).out, "\x1b[2J\n");
  EXPECT_EQ(Run({"complete", "x"}, {.out_is_terminal = true}).out, "\uFFFD[2J\n");
}

}  // namespace
}  // namespace annulus::client
