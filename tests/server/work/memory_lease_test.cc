// What calls hold of the memory for requests, and what they are told when there is none.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/http2_peer.h"
#include "tests/server/raw_call.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr char kGenerateMethod[] = "/annulus.v1.InferenceService/Generate";
constexpr char kStreamGenerateMethod[] = "/annulus.v1.InferenceService/StreamGenerate";
constexpr char kTokenizeMethod[] = "/annulus.v1.InferenceService/Tokenize";
constexpr char kApplyChatTemplateMethod[] = "/annulus.v1.InferenceService/ApplyChatTemplate";
constexpr char kAskManyMethod[] = "/annulus.v1.InferenceService/AskMany";
constexpr char kPrefillMethod[] = "/annulus.v1.DocumentService/PrefillDocument";
constexpr char kUploadMethod[] = "/annulus.v1.DocumentService/UploadDocument";

// Bytes that a message of `bytes` becomes when each pair of them is an empty message or group.
std::string Pairs(absl::string_view pair, size_t bytes) {
  std::string all;
  while (all.size() < bytes) absl::StrAppend(&all, pair);
  return all;
}

TEST(MemoryLeaseTest, MessagesThatMultiplyAreRefusedBeforeTheyAreDecoded) {
  TestServer server({"--max-prompts-memory", "8MiB", "--max-message-size", "4MiB"});
  server.Serve();
  // Two groups of a field that nobody knows, one inside the other.
  const std::string groups = Pairs("\xa3\x38\xa3\x38\xa4\x38\xa4\x38", size_t{1} << 20);
  const std::vector<std::pair<const char*, std::string>> calls = {
      {kGenerateMethod, "spec"}, {kStreamGenerateMethod, "spec"},
      {kTokenizeMethod, "text"}, {kApplyChatTemplateMethod, "messages"},
      {kPrefillMethod, "name"},  {kAskManyMethod, "questions"},
      {kUploadMethod, ""}};
  for (const auto& [method, field] : calls) {
    const grpc::Status status = CallRaw(server.channel(), method, groups);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE) << method;
    EXPECT_EQ(Details(status).reason, "MEMORY_TOO_SMALL") << method;
    EXPECT_EQ(Details(status).field, field) << method;
    EXPECT_THAT(Details(status).metadata, ::testing::Contains(::testing::Key("needed"))) << method;
  }
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_TRUE(server.inference()->Generate(&context, TextRequest("x"), &response).ok());
}

TEST(MemoryLeaseTest, AFailedAllocationFailsItsCallOnly) {
  TestServer server;
  server.Serve();
  server.engine().set_out_of_memory(true);
  v1::TokenizeRequest tokenize;
  tokenize.set_text("x");
  v1::ApplyChatTemplateRequest chat;
  chat.mutable_messages()->add_messages()->set_role("user");
  const std::vector<std::pair<const char*, std::string>> calls = {
      {kGenerateMethod, TextRequest("x").SerializeAsString()},
      {kStreamGenerateMethod, TextStreamRequest("x").SerializeAsString()},
      {kTokenizeMethod, tokenize.SerializeAsString()},
      {kApplyChatTemplateMethod, chat.SerializeAsString()}};
  server.engine().set_chat_template(true);
  for (const auto& [method, message] : calls) {
    const grpc::Status status = CallRaw(server.channel(), method, message);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << method;
    EXPECT_EQ(Details(status).reason, "QUEUE_FULL") << method;
    EXPECT_GT(Details(status).retry_ms, 0) << method;
  }
  const grpc::Status upload = server.Upload("name", "text");
  EXPECT_EQ(upload.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Details(upload).reason, "QUEUE_FULL");
  server.engine().set_out_of_memory(false);
  for (const auto& [method, message] : calls) {
    EXPECT_TRUE(CallRaw(server.channel(), method, message).ok()) << method;
  }
  EXPECT_TRUE(server.Upload("name", "text").ok());
}

// How much a template takes shows only while it computes: then it asks.
TEST(MemoryLeaseTest, WhatATemplateComputesIsHeldOfTheSameBudget) {
  constexpr size_t kMiB = size_t{1} << 20;
  TestServer server({"--max-prompts-memory", "8MiB"});
  server.engine().set_chat_template(true);
  server.Serve();
  v1::ApplyChatTemplateRequest chat;
  v1::GenerateRequest generate;
  for (v1::Messages* messages :
       {chat.mutable_messages(), generate.mutable_spec()->mutable_messages()}) {
    v1::Message* message = messages->add_messages();
    message->set_role("user");
    message->set_content("x");
  }
  const std::vector<std::pair<const char*, std::string>> calls = {
      {kApplyChatTemplateMethod, chat.SerializeAsString()},
      {kGenerateMethod, generate.SerializeAsString()},
      {kStreamGenerateMethod, generate.SerializeAsString()},
      {"/annulus.v1.InferenceService/RenderPrompt", generate.SerializeAsString()},
      {"/annulus.v1.InferenceService/Plan", generate.SerializeAsString()}};
  const auto bystander = [&] {
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return server.inference()->Generate(&context, TextRequest("x"), &response).ok();
  };
  server.engine().set_template_memory_bytes(9 * kMiB);  // never fits
  for (const auto& [method, message] : calls) {
    const grpc::Status status = CallRaw(server.channel(), method, message);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE) << method;
    EXPECT_EQ(Details(status).reason, "MEMORY_TOO_SMALL") << method << status.error_message();
    const bool template_alone = absl::string_view(method) == kApplyChatTemplateMethod;
    EXPECT_EQ(Details(status).field, template_alone ? "messages" : "spec") << method;
    EXPECT_TRUE(bystander()) << method;
  }
  server.engine().set_template_memory_bytes(5 * kMiB);  // fits while nobody else has much
  for (const auto& [method, message] : calls) {
    EXPECT_TRUE(CallRaw(server.channel(), method, message).ok()) << method;
  }
  server.engine().set_tokenize_delay(seconds(3));
  grpc::ClientContext holds;
  v1::TokenizeRequest text;
  text.set_text(std::string(size_t{80} << 10, 'x'));  // 4 MB while it is tokenized
  v1::TokenizeResponse ids;
  std::thread holder([&] { server.inference()->Tokenize(&holds, text, &ids); });
  EXPECT_TRUE(Eventually([&] { return server.engine().tokenizing() == 1; }));
  for (const auto& [method, message] : calls) {
    const grpc::Status status = CallRaw(server.channel(), method, message);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << method;
    EXPECT_EQ(Details(status).reason, "QUEUE_FULL") << method << status.error_message();
    EXPECT_GT(Details(status).retry_ms, 0) << method;
  }
  holds.TryCancel();
  holder.join();
}

double Errors(TestServer& server, const std::string& code) {
  return ScrapeSamples(
      server.metrics_address())[absl::StrCat("annulus_request_errors_total{code=\"", code, "\"}")];
}

TEST(CancelledCallTest, ACallWhoseMessageNeverCameIsCancelledAndNotInvalid) {
  TestServer server({"--metrics", "127.0.0.1:0"});
  server.Serve();
  const std::string message = GrpcMessage(TextRequest("x").SerializeAsString());
  const std::string reset("\0\0\0\x8", 4);
  Http2Peer peer(server.address());
  for (uint32_t i = 0; i < 300; ++i) {
    const uint32_t stream = 2 * i + 1;
    // Nothing of the message, a part of it, or all.
    const size_t size = i % 3 == 0 ? 0 : i % 3 == 1 ? message.size() / 2 : message.size();
    ASSERT_TRUE(
        peer.Send(absl::StrCat(Frame(FrameType::kHeaders, kEndHeaders, stream,
                                     CallHeaders(i % 2 == 0 ? kGenerateMethod : kTokenizeMethod)),
                               Frame(FrameType::kData, size == message.size() ? kEndStream : 0,
                                     stream, message.substr(0, size)),
                               Frame(FrameType::kReset, 0, stream, reset))));
  }
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_TRUE(server.inference()->Generate(&context, TextRequest("x"), &response).ok());
  EXPECT_TRUE(Eventually([&] { return Errors(server, "CANCELLED") >= 100; }));
  EXPECT_EQ(Errors(server, "INVALID_ARGUMENT"), 0);
}

TEST(CutOffTest, CallsThatADrainEndsSayThatTheyHadBegun) {
  TestServer server({"--grace-time", "100ms"});
  server.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  server.Serve();
  const auto stub = server.inference();
  grpc::ClientContext context;
  const auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  RawCall upload(server.channel(), kUploadMethod);
  v1::UploadDocumentRequest header;
  header.mutable_header()->set_name("half");
  ASSERT_TRUE(upload.Write(header.SerializeAsString()));
  server.engine().set_tokenize_delay(milliseconds(1000));
  grpc::Status tokenized;
  std::thread tokenizing([&] {
    v1::TokenizeRequest request;
    request.set_text("x");
    tokenized = CallRaw(server.channel(), kTokenizeMethod, request.SerializeAsString());
  });
  std::this_thread::sleep_for(milliseconds(100));  // for the three to be under way
  std::thread draining([&] {
    server.server().WaitUntilDrained();
    server.server().Stop(nullptr);
  });
  server.server().RequestDrain(std::nullopt);
  const grpc::Status late = ReadStream(*stub, TextStreamRequest("x")).status;
  while (reader->Read(&response)) {
  }
  const grpc::Status stream = reader->Finish();
  const grpc::Status uploaded = upload.Finish();
  tokenizing.join();
  draining.join();
  for (const grpc::Status& cut : {stream, uploaded, tokenized}) {
    EXPECT_EQ(cut.error_code(), grpc::StatusCode::UNAVAILABLE) << cut.error_message();
    EXPECT_EQ(Details(cut).reason, "DRAINING");
    EXPECT_GT(Details(cut).retry_ms, 0);
    EXPECT_THAT(cut.error_message(), HasSubstr("did not end within its --grace-time"));
  }
  EXPECT_EQ(late.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(late.error_message(), HasSubstr("accepts no new work"));
}

TEST(AnswerSizeTest, UnaryAnswersThatCannotBeSentAreRefusedWithTheNumbers) {
  TestServer server({"--max-message-size", "64KiB"});
  server.engine().set_max_context(1 << 20);
  server.Serve();
  v1::DetokenizeRequest ids;  // of texts longer than their ids are on the wire
  for (int i = 0; i < 30'000; ++i) ids.add_token_ids(FakeEngine::kBeginOfText);
  v1::TokenizeRequest text;  // of ids that take two bytes each
  for (int i = 0; i < 20'000; ++i) text.mutable_text()->append("\xc3\xa9");
  v1::GenerateRequest logprobs = TextRequest("x");
  logprobs.mutable_spec()->mutable_sampling()->set_min_tokens(1000);
  logprobs.mutable_spec()->mutable_sampling()->set_max_tokens(1000);
  logprobs.mutable_spec()->mutable_sampling()->set_logprobs(20);
  v1::MapAttentionRequest map;
  map.set_policy("dilated_blocks");
  map.set_tokens(1 << 20);
  map.set_heads(4);
  map.set_cells(1024);
  const std::vector<std::tuple<const char*, const char*, std::string>> calls = {
      {"/annulus.v1.InferenceService/Detokenize", "token_ids", ids.SerializeAsString()},
      {kTokenizeMethod, "text", text.SerializeAsString()},
      {kGenerateMethod, "spec.sampling", logprobs.SerializeAsString()},
      {"/annulus.v1.InferenceService/MapAttention", "cells", map.SerializeAsString()}};
  for (const auto& [method, field, message] : calls) {
    const grpc::Status status = CallRaw(server.channel(), method, message);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE) << method;
    EXPECT_EQ(Details(status).reason, "ANSWER_TOO_LARGE") << method << status.error_message();
    EXPECT_EQ(Details(status).field, field) << method;
    EXPECT_EQ(Details(status).metadata["available"], "65536") << method;
  }
  EXPECT_TRUE(server.engine().submitted().empty());
}

TEST(LargeHeadersTest, FailTheirOwnCallOnly) {
  TestServer server;
  server.engine().set_scripter([](const RequestSpec&) { return Endless(milliseconds(5)); });
  server.Serve();
  const auto stub = server.inference();
  grpc::ClientContext context;
  const auto reader = stub->StreamGenerate(&context, TextStreamRequest("x"));
  v1::StreamGenerateResponse event;
  ASSERT_TRUE(reader->Read(&event));
  for (const size_t size : {size_t{17} << 10, size_t{40} << 10, size_t{64} << 10}) {
    grpc::ClientContext large;
    large.AddMetadata("x-large", std::string(size, 'x'));
    v1::GenerateResponse response;
    const grpc::Status status = stub->Generate(&large, TextRequest("x"), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << size;
    EXPECT_EQ(Details(status).reason, "MESSAGE_TOO_LARGE") << size;
    EXPECT_TRUE(reader->Read(&event)) << size;
  }
  context.TryCancel();
}

}  // namespace
}  // namespace annulus::server
