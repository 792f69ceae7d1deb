// Generate, StreamGenerate, Tokenize, Detokenize: what clients get when all goes well, and the
// errors that requests of their own making get.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/cord.h"
#include "tests/server/grpc/generate_fixture.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

class GenerateTest : public GenerateFixture {};

TEST_F(GenerateTest, StreamsEventsInOrder) {
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.queued = {2, 1, 0};
    script.progress_events = 3;
    script.deltas = {"Hel", "", "lo"};
    script.interval = std::chrono::milliseconds(20);
    return script;
  });
  const StreamResult result = ReadStream(*stub_, TextStreamRequest("hi"));
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  std::vector<int> kinds;
  for (const auto& event : result.events) kinds.push_back(event.event_case());
  EXPECT_THAT(kinds, ElementsAre(1, 1, 1, 2, 2, 2, 3, 3, 3, 4));
  EXPECT_EQ(result.events[0].queued().position(), 2);
  EXPECT_EQ(result.events[5].prompt_progress().processed(), 3);
  EXPECT_EQ(result.text, "Hello");
  const v1::Completion& completion = result.events.back().completion();
  EXPECT_EQ(completion.finish_reason(), v1::FINISH_REASON_STOP);
  EXPECT_EQ(completion.usage().prompt_tokens(), 3);
  EXPECT_EQ(completion.usage().completion_tokens(), 3);
  EXPECT_EQ(completion.attention().policy(), "dense");
  EXPECT_FALSE(completion.request_id().empty());
}

TEST_F(GenerateTest, TheFirstEventAndTheCompletionTellWhatTheAnswerFollowsFrom) {
  server_.engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    script.queued = {1};
    script.deltas = {"a", "b"};
    script.completion.attention.ring_degree = 3;
    if (spec.digest) script.completion.digest = "d1e5";
    return script;
  });
  v1::StreamGenerateRequest request = TextStreamRequest("hi");
  request.mutable_spec()->mutable_sampling()->set_seed(18446744073709551615u);
  request.mutable_spec()->set_digest(true);
  const StreamResult result = ReadStream(*stub_, request);
  ASSERT_TRUE(result.status.ok()) << result.status.error_message();
  const std::string kernels = server_.engine().model().kernels;
  for (const auto& event : result.events) {
    EXPECT_EQ(event.has_origin(), &event == &result.events.front());
  }
  const v1::Origin& first = result.events.front().origin();
  EXPECT_EQ(first.seed(), 18446744073709551615u);
  EXPECT_EQ(first.kernels(), kernels);
  EXPECT_EQ(first.ring_degree(), 0);
  const v1::Origin& last = result.events.back().completion().origin();
  EXPECT_EQ(last.seed(), 18446744073709551615u);
  EXPECT_EQ(last.kernels(), kernels);
  EXPECT_EQ(last.ring_degree(), 3);
  EXPECT_EQ(last.digest(), "d1e5");
  // A request that need not wait has its ranks when the first word comes.
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.progress_events = 2;
    script.deltas = {"a"};
    script.completion.attention.ring_degree = 3;
    return script;
  });
  const StreamResult at_once = ReadStream(*stub_, request);
  ASSERT_TRUE(at_once.events.front().has_prompt_progress());
  EXPECT_EQ(at_once.events.front().origin().ring_degree(), 3);
  EXPECT_EQ(at_once.events.front().origin().kernels(), kernels);
  // What the server draws it tells, and gives to the engine.
  v1::GenerateRequest whole;
  whole.mutable_spec()->set_text("hi");
  ASSERT_TRUE(Generate(whole).ok());
  const RequestSpec submitted = server_.engine().submitted().back();
  EXPECT_EQ(response_.completion().origin().seed(), submitted.sampling.seed);
  EXPECT_EQ(response_.completion().origin().digest(), "");
  EXPECT_FALSE(submitted.digest);
}

TEST_F(GenerateTest, AFastEngineLosesNoToken) {
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas.assign(5000, "x");
    return script;
  });
  const StreamResult result = ReadStream(*stub_, TextStreamRequest("hi"));
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.text, std::string(5000, 'x'));
}

TEST_F(GenerateTest, GathersTheWholeAnswer) {
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas = {"a", "b", "c"};
    script.completion.finish_reason = FinishReason::kLength;
    script.completion.matched_stop = "END";
    return script;
  });
  auto request = TextRequest("hi");
  request.mutable_spec()->set_request_id("mine 1");
  request.mutable_spec()->mutable_sampling()->set_logprobs(1);
  request.mutable_spec()->mutable_sampling()->set_prompt_logprobs(1);
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_EQ(response_.text(), "abc");
  ASSERT_EQ(response_.prompt_logprobs_size(), 2);  // of "hi", after the beginning of text
  EXPECT_EQ(response_.prompt_logprobs(1).text(), "i");
  EXPECT_EQ(response_.prompt_logprobs(1).logprob(), -0.5f);
  EXPECT_THAT(response_.token_ids(), ElementsAre(0, 1, 2));
  ASSERT_EQ(response_.logprobs_size(), 3);
  EXPECT_EQ(response_.logprobs(2).text(), "token");
  EXPECT_EQ(response_.logprobs(2).alternatives(0).token_id(), 2);
  EXPECT_EQ(response_.logprobs(2).alternatives(0).text(), "alternative");
  EXPECT_EQ(response_.logprobs(2).bytes(), "token");
  EXPECT_EQ(response_.logprobs(2).alternatives(0).bytes(), "\xe2\x80");
  EXPECT_EQ(response_.completion().finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(response_.completion().matched_stop(), "END");
  EXPECT_EQ(response_.completion().request_id(), "mine 1");
}

TEST_F(GenerateTest, SamplingFieldsArriveAndAbsentOnesHaveTheirDefaults) {
  ASSERT_TRUE(Generate(TextRequest("x")).ok());
  SamplingParams params = server_.engine().submitted().back().sampling;
  EXPECT_EQ(params.max_tokens, SamplingParams().max_tokens);
  EXPECT_EQ(params.temperature, 1);
  EXPECT_TRUE(params.seed.has_value());  // the server draws one
  EXPECT_FALSE(params.logprobs.has_value());

  EXPECT_EQ(server_.engine().submitted().back().priority, 0);
  EXPECT_FALSE(server_.engine().submitted().back().speculation.has_value());

  auto request = TextRequest("x");
  request.mutable_spec()->set_priority(-2);
  request.mutable_spec()->set_speculation(v1::SPECULATION_NGRAM);
  v1::SamplingParams* sampling = request.mutable_spec()->mutable_sampling();
  sampling->set_max_tokens(7);
  sampling->set_min_tokens(3);
  sampling->set_temperature(0);
  sampling->set_top_p(0.5);
  sampling->set_top_k(4);
  sampling->set_min_p(0.1);
  sampling->set_frequency_penalty(-1);
  sampling->set_presence_penalty(1);
  sampling->set_repetition_penalty(1.5);
  sampling->set_seed(9);
  sampling->add_stop("\n");
  sampling->add_stop_token_ids(5);
  sampling->set_ignore_eos(true);
  sampling->set_logprobs(0);
  (*sampling->mutable_logit_bias())[3] = -100;
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_EQ(server_.engine().submitted().back().priority, -2);
  EXPECT_EQ(server_.engine().submitted().back().speculation, Speculation::kNgram);
  params = server_.engine().submitted().back().sampling;
  EXPECT_EQ(params.max_tokens, 7);
  EXPECT_EQ(params.min_tokens, 3);
  EXPECT_EQ(params.temperature, 0);
  EXPECT_EQ(params.top_p, 0.5f);
  EXPECT_EQ(params.top_k, 4);
  EXPECT_EQ(params.min_p, 0.1f);
  EXPECT_EQ(params.frequency_penalty, -1);
  EXPECT_EQ(params.presence_penalty, 1);
  EXPECT_EQ(params.repetition_penalty, 1.5f);
  EXPECT_EQ(params.seed, 9u);
  EXPECT_THAT(params.stop, ElementsAre("\n"));
  EXPECT_THAT(params.stop_token_ids, ElementsAre(5));
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_EQ(params.logprobs, 0);
  EXPECT_EQ(params.logit_bias.at(3), -100);

  request.mutable_spec()->set_speculation(v1::SPECULATION_OFF);
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_EQ(server_.engine().submitted().back().speculation, Speculation::kOff);
}

// By these the engine shares its time among clients, and among the connections of each.
TEST_F(GenerateTest, RequestsCarryTheClientsAddressAndConnection) {
  const auto other = v1::InferenceService::NewStub(server_.NewChannel());
  v1::StreamGenerateRequest named = TextStreamRequest("hi");
  named.mutable_spec()->set_request_id("a");
  ASSERT_TRUE(Generate(TextRequest("hi")).ok());
  ASSERT_TRUE(ReadStream(*stub_, named).status.ok());
  ASSERT_TRUE(ReadStream(*other, TextStreamRequest("hi")).status.ok());
  const std::vector<RequestSpec> submitted = server_.engine().submitted();
  ASSERT_EQ(submitted.size(), 3u);
  for (const RequestSpec& spec : submitted) {
    EXPECT_EQ(spec.client, "ipv4:127.0.0.1");
    EXPECT_THAT(spec.connection, StartsWith("ipv4:127.0.0.1:"));
  }
  EXPECT_EQ(submitted[0].connection, submitted[1].connection);
  EXPECT_NE(submitted[0].connection, submitted[2].connection);
}

TEST_F(GenerateTest, PromptsAreBuiltFromEveryKindOfInput) {
  const int32_t bos = FakeEngine::kBeginOfText;
  ASSERT_TRUE(Generate(TextRequest("ab")).ok());
  EXPECT_THAT(LastPrompt(), ElementsAre(bos, 'a', 'b'));

  v1::GenerateRequest ids;
  ids.mutable_spec()->mutable_token_ids()->add_ids(7);
  ASSERT_TRUE(Generate(ids).ok());
  EXPECT_THAT(LastPrompt(), ElementsAre(7));

  v1::GenerateRequest messages;
  for (const char* content : {"a", "b"}) {
    messages.mutable_spec()->mutable_messages()->add_messages()->set_content(content);
  }
  ASSERT_TRUE(Generate(messages).ok());
  EXPECT_THAT(LastPrompt(), ElementsAre(bos, 'a', '\n', 'b'));
}

TEST_F(GenerateTest, DocumentsComeFirstInTheirOrder) {
  const int32_t bos = FakeEngine::kBeginOfText;
  ASSERT_TRUE(server_.Upload("one", "12").ok());
  ASSERT_TRUE(server_.Upload("two", "34").ok());
  auto request = TextRequest("?");
  request.mutable_spec()->add_documents(std::string("two"));
  request.mutable_spec()->add_documents(std::string("one"));
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_THAT(LastPrompt(), ElementsAre(bos, '3', '4', '1', '2', '?'));

  request.mutable_spec()->mutable_token_ids()->add_ids(9);
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_THAT(LastPrompt(), ElementsAre(bos, '3', '4', '1', '2', 9));

  request.mutable_spec()->set_text("");  // a document alone is a prompt
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_EQ(LastPrompt().size(), 5u);
}

TEST_F(GenerateTest, UnknownModelsAndDocumentsAreNotFound) {
  auto request = TextRequest("x");
  request.mutable_spec()->set_model("other");
  ErrorDetails details = Details(Generate(request));
  EXPECT_EQ(details.reason, "MODEL_NOT_FOUND");
  EXPECT_EQ(details.resource_type, "model");
  EXPECT_EQ(details.resource_name, "other");

  request.mutable_spec()->set_model("fake");
  request.mutable_spec()->add_documents(std::string("nowhere"));
  details = Details(Generate(request));
  EXPECT_EQ(details.reason, "DOCUMENT_NOT_FOUND");
  EXPECT_EQ(details.resource_name, "nowhere");
}

TEST_F(GenerateTest, BadFieldsAreNamed) {
  const auto field_of = [&](const std::function<void(v1::GenerationSpec&)>& change) {
    auto request = TextRequest("x");
    change(*request.mutable_spec());
    const grpc::Status status = Generate(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    const ErrorDetails details = Details(status);
    EXPECT_EQ(details.reason, "INVALID_FIELD");
    return details.field;
  };
  EXPECT_EQ(field_of([](auto& spec) { spec.clear_text(); }), "spec.input");
  EXPECT_EQ(field_of([](auto& spec) { spec.set_text(""); }), "spec.text");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_token_ids(); }), "spec.token_ids");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_messages(); }), "spec.messages");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_token_ids()->add_ids(-1); }), "spec.token_ids");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_token_ids()->add_ids(257); }), "spec.token_ids");
  EXPECT_EQ(field_of([](auto& spec) { spec.set_priority(3); }), "spec.priority");
  EXPECT_EQ(field_of([](auto& spec) { spec.set_priority(-3); }), "spec.priority");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_output(); }), "spec.output");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_output()->set_regex("("); }),
            "spec.output.regex");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_output()->set_json_schema("{"); }),
            "spec.output.json_schema");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_output()->mutable_choices(); }),
            "spec.output.choices");
  EXPECT_EQ(field_of([](auto& spec) {
              auto& choices = *spec.mutable_output()->mutable_choices();
              for (int i = 0; i < 10001; ++i) choices.add_texts("a");
            }),
            "spec.output.choices.texts");
  // What is not served yet is refused, never ignored.
  EXPECT_EQ(field_of([](auto& spec) {
              spec.mutable_tool_choice()->set_mode(v1::TOOL_CHOICE_MODE_REQUIRED);
            }),
            "spec.tool_choice.mode");
  EXPECT_EQ(field_of([](auto& spec) {
              spec.mutable_tool_choice()->set_mode(static_cast<v1::ToolChoiceMode>(9));
            }),
            "spec.tool_choice.mode");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_tool_choice()->set_name("f"); }),
            "spec.tool_choice.name");
  EXPECT_EQ(field_of([](auto& spec) { spec.set_reasoning_budget(0); }), "spec.reasoning_budget");
  EXPECT_EQ(field_of([](auto& spec) { spec.set_request_id(""); }), "spec.request_id");
  EXPECT_EQ(field_of([](auto& spec) { spec.set_request_id(std::string(129, 'x')); }),
            "spec.request_id");
  EXPECT_EQ(field_of([](auto& spec) { spec.set_request_id("a\nb"); }), "spec.request_id");
  EXPECT_EQ(field_of([](auto& spec) { spec.add_documents(std::string("../etc/passwd")); }),
            "spec.documents");
  EXPECT_EQ(field_of([](auto& spec) {
              for (int i = 0; i < 65; ++i) spec.add_documents(std::string("a"));
            }),
            "spec.documents");
  EXPECT_EQ(field_of([](auto& spec) { spec.mutable_sampling()->set_top_p(0); }),
            "spec.sampling.top_p");
}

TEST_F(GenerateTest, OutputConstraintsAreCompiledForTheEngine) {
  server_.engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    script.completion.output_below_min_tokens = spec.output.machine != nullptr;
    return script;
  });
  auto request = TextRequest("x");
  ASSERT_TRUE(Generate(request).ok());
  EXPECT_EQ(server_.engine().submitted().back().output.machine, nullptr);
  EXPECT_FALSE(response_.completion().output_below_min_tokens());
  for (int form = 0; form < 4; ++form) {
    v1::OutputConstraint& output = *request.mutable_spec()->mutable_output();
    if (form == 0) output.set_json_schema(R"({"type":"integer"})");
    if (form == 1) output.mutable_json_object();
    if (form == 2) output.set_regex("a+");
    if (form == 3) output.mutable_choices()->add_texts("yes");
    ASSERT_TRUE(Generate(request).ok()) << form;
    EXPECT_NE(server_.engine().submitted().back().output.machine, nullptr) << form;
    EXPECT_TRUE(response_.completion().output_below_min_tokens());
  }
}

TEST_F(GenerateTest, BeyondTheContextTellsTheNumbers) {
  // With the beginning-of-text id and one token of the answer, this fills the context.
  auto longest = TextRequest(std::string(4096 - 2, 'x'));
  longest.mutable_spec()->mutable_sampling()->set_max_tokens(1);
  EXPECT_TRUE(Generate(longest).ok());
  const grpc::Status status = Generate(TextRequest(std::string(4096, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  ErrorDetails details = Details(status);
  EXPECT_EQ(details.reason, "CONTEXT_TOO_LONG");
  // Without max_tokens the default is what the prompt leaves, here the least: one token.
  EXPECT_EQ(details.metadata.at("needed"), std::to_string(1 + 4096 + 1));
  EXPECT_EQ(details.metadata.at("available"), "4096");

  // Many documents together: refused before they are joined.
  ASSERT_TRUE(server_.Upload("a", std::string(2000, 'x')).ok());
  auto request = TextRequest("?");
  for (int i = 0; i < 3; ++i) request.mutable_spec()->add_documents(std::string("a"));
  details = Details(Generate(request));
  EXPECT_EQ(details.reason, "CONTEXT_TOO_LONG");
  EXPECT_EQ(details.field, "spec.documents");
  EXPECT_EQ(details.metadata.at("available"), "4096");
}

TEST_F(GenerateTest, AFullQueueSaysWhenToRetry) {
  absl::Status full = absl::ResourceExhaustedError("256 requests are waiting, as many as may wait");
  full.SetPayload(kRetryPayload, absl::Cord("750"));
  server_.engine().set_submit_error(full);
  grpc::ClientContext context;
  const grpc::Status status = server_.inference()->Generate(&context, TextRequest("x"), &response_);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Details(status).reason, "QUEUE_FULL");
  EXPECT_EQ(Details(status).retry_ms, 750);
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_EQ(std::string(pushback->second.data(), pushback->second.size()), "750");
}

TEST_F(GenerateTest, AQuotaThatTheRequestNeverFitsSaysNotToRetry) {
  absl::Status quota = absl::ResourceExhaustedError("more than the tenant may ever have");
  quota.SetPayload(kLimitPayload, absl::Cord("kv_bytes"));
  server_.engine().set_submit_error(quota);
  grpc::ClientContext context;
  const grpc::Status status = server_.inference()->Generate(&context, TextRequest("x"), &response_);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Details(status).reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(Details(status).retry_ms, -1);  // no RetryInfo
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto pushback = trailers.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, trailers.end());
  EXPECT_EQ(std::string(pushback->second.data(), pushback->second.size()), "-1");
}

// No retry policy repeats OUT_OF_RANGE.
TEST_F(GenerateTest, WhatCanNeverFitNamesTheFieldThatIsTooLarge) {
  for (const auto& [limit, reason, field, place] :
       {std::tuple("memory", "MEMORY_TOO_SMALL", "input", "spec.text"),
        std::tuple("answer", "ANSWER_TOO_LARGE", "sampling.max_tokens", "spec.sampling.max_tokens"),
        std::tuple("context", "CONTEXT_TOO_LONG", "input", "spec.text")}) {
    absl::Status never = absl::OutOfRangeError("too large");
    never.SetPayload(kLimitPayload, absl::Cord(limit));
    never.SetPayload(kFieldPayload, absl::Cord(field));
    server_.engine().set_submit_error(never);
    const grpc::Status status = Generate(TextRequest("x"));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
    EXPECT_EQ(Details(status).reason, reason);
    EXPECT_EQ(Details(status).field, place);
  }
}

TEST_F(GenerateTest, AFailureMidwayEndsTheStreamWithItsStatus) {
  server_.engine().set_scripter([](const RequestSpec&) {
    FakeScript script;
    script.deltas = {"a"};
    script.interval = std::chrono::milliseconds(20);
    script.completion.status = absl::UnavailableError("rank 2 failed");
    return script;
  });
  const StreamResult result = ReadStream(*stub_, TextStreamRequest("x"));
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Details(result.status).reason, "RANK_FAILED");
  for (const auto& event : result.events) EXPECT_FALSE(event.has_completion());
}

TEST_F(GenerateTest, FaultsOfTheEngineRevealNothing) {
  server_.engine().set_submit_error(absl::InternalError("/srv/weights: bad pointer 0x7f"));
  const grpc::Status status = Generate(TextRequest("x"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_EQ(status.error_message().find("srv"), std::string::npos);
}

TEST_F(GenerateTest, TokenizeAndDetokenizeAreInverse) {
  grpc::ClientContext tokenize_context;
  v1::TokenizeRequest tokenize;
  tokenize.set_text("h\xc3\xa4");
  v1::TokenizeResponse tokens;
  ASSERT_TRUE(stub_->Tokenize(&tokenize_context, tokenize, &tokens).ok());
  EXPECT_THAT(tokens.token_ids(), ElementsAre(FakeEngine::kBeginOfText, 'h', 0xc3, 0xa4));

  grpc::ClientContext plain_context;
  tokenize.set_add_special(false);
  ASSERT_TRUE(stub_->Tokenize(&plain_context, tokenize, &tokens).ok());
  EXPECT_EQ(tokens.token_ids_size(), 3);

  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(FakeEngine::kBeginOfText);
  detokenize.mutable_token_ids()->MergeFrom(tokens.token_ids());
  v1::DetokenizeResponse text;
  grpc::ClientContext detokenize_context;
  ASSERT_TRUE(stub_->Detokenize(&detokenize_context, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "<s>h\xc3\xa4");
  grpc::ClientContext skip_context;
  detokenize.set_skip_special(true);
  ASSERT_TRUE(stub_->Detokenize(&skip_context, detokenize, &text).ok());
  EXPECT_EQ(text.text(), "h\xc3\xa4");

  grpc::ClientContext bad_context;
  detokenize.add_token_ids(1'000'000);
  EXPECT_EQ(Details(stub_->Detokenize(&bad_context, detokenize, &text)).field, "token_ids");
  grpc::ClientContext model_context;
  tokenize.set_model("other");
  EXPECT_EQ(Details(stub_->Tokenize(&model_context, tokenize, &tokens)).reason, "MODEL_NOT_FOUND");
}

}  // namespace
}  // namespace annulus::server
