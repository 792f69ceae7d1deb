// Messages: through a chat template, or joined where there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChatTest : public ::testing::Test {
 protected:
  ChatTest() : stub_(server_.inference()) {
    server_.engine().set_chat_template(true);
    server_.Serve();
  }

  static void Add(v1::Messages& messages, const std::string& role, const std::string& content) {
    v1::Message& message = *messages.add_messages();
    message.set_role(role);
    message.set_content(content);
  }

  grpc::Status Apply(const v1::Messages& messages) {
    v1::ApplyChatTemplateRequest request;
    *request.mutable_messages() = messages;
    grpc::ClientContext context;
    applied_.Clear();
    return stub_->ApplyChatTemplate(&context, request, &applied_);
  }

  grpc::Status Generate(const v1::GenerationSpec& spec) {
    v1::GenerateRequest request;
    *request.mutable_spec() = spec;
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return stub_->Generate(&context, request, &response);
  }

  // The text of the last prompt; the fake engine's tokens are bytes.
  std::string LastPrompt() {
    const std::vector<int32_t> prompt = server_.engine().submitted().back().prompt;
    std::string text;
    for (const int32_t id : prompt) {
      text += id == FakeEngine::kBeginOfText ? "<s>" : std::string(1, static_cast<char>(id));
    }
    return text;
  }

  TestServer server_;
  std::unique_ptr<v1::InferenceService::Stub> stub_;
  v1::ApplyChatTemplateResponse applied_;
  v1::RenderPromptResponse rendered_;
};

TEST_F(ChatTest, ApplyChatTemplateShowsTextAndIds) {
  v1::Messages messages;
  Add(messages, "system", "S");
  messages.add_messages()->set_role("assistant");
  Add(messages, "user", "U");
  messages.set_tools("[]");
  ASSERT_TRUE(Apply(messages).ok());
  EXPECT_EQ(applied_.text(), "system:S|assistant:(none)|user:U|tools>");
  EXPECT_EQ(std::string(applied_.token_ids().begin(), applied_.token_ids().end()), applied_.text());
  messages.set_add_generation_prompt(false);
  messages.clear_tools();
  ASSERT_TRUE(Apply(messages).ok());
  EXPECT_EQ(applied_.text(), "system:S|assistant:(none)|user:U|");
}

TEST_F(ChatTest, TheLastMessageCanBeContinued) {
  v1::GenerationSpec spec;
  Add(*spec.mutable_messages(), "user", "U");
  Add(*spec.mutable_messages(), "assistant", "It is");
  spec.mutable_messages()->set_continue_final_message(true);
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "user:U|assistant:It is");
  spec.mutable_messages()->set_add_generation_prompt(true);
  EXPECT_EQ(Details(Generate(spec)).field, "spec.messages.continue_final_message");
}

TEST_F(ChatTest, GenerateUsesTheTemplateAndAddsNoSpecialTokens) {
  v1::GenerationSpec spec;
  Add(*spec.mutable_messages(), "user", "U");
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "user:U|>");
}

TEST_F(ChatTest, DocumentsHaveFramesWithTheirTitles) {
  ASSERT_TRUE(server_.Upload("one", "ONE", nullptr, 1000, "1 \"é\".txt").ok());
  ASSERT_TRUE(server_.Upload("two", "TWO!").ok());
  // The fake engine takes this for the end of a frame.
  v1::UploadDocumentResponse third;
  ASSERT_TRUE(server_.Upload("three", "end]", &third).ok());
  v1::GenerationSpec spec;
  Add(*spec.mutable_messages(), "user", "U");
  for (const char* name : {"one", "two", "three"}) spec.add_documents(name);
  const std::string mark = third.document().sha256().substr(0, 32);
  const std::string framed =
      absl::StrCat("user:[1 \"é\".txt:ONE][two:TWO!][three ", mark, ":end]]");
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), absl::StrCat(framed, "U|>"));
  // What the same documents share with other questions ends where their frames end.
  const size_t first = std::string("user:[1 \"é\".txt:ONE]").size();
  EXPECT_THAT(server_.engine().submitted().back().shared_prefixes,
              ElementsAre(first, first + std::string("[two:TWO!]").size(), framed.size()));

  spec.set_framing(v1::FRAMING_NONE);
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "user:ONETWO!end]U|>");
  spec.set_framing(static_cast<v1::Framing>(7));
  EXPECT_EQ(Details(Generate(spec)).field, "spec.framing");
  EXPECT_THAT(Generate(spec).error_message(),
              HasSubstr("spec.framing: 7 is not allowed; this server knows FRAMING_UNSPECIFIED, "));

  // Models that continue texts as they stand.
  spec.set_framing(v1::FRAMING_AUTO);
  server_.engine().set_frames_documents(false);
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "user:ONETWO!end]U|>");
}

TEST_F(ChatTest, WithoutATemplateMessagesAreFramedAndTextIsNot) {
  server_.engine().set_chat_template(false);
  ASSERT_TRUE(server_.Upload("one", "ONE").ok());
  v1::GenerationSpec spec;
  spec.add_documents("one");
  Add(*spec.mutable_messages(), "user", "U");
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "[one:ONE]U");
  spec.set_framing(v1::FRAMING_NONE);
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "<s>ONEU");
  spec.set_framing(v1::FRAMING_AUTO);
  spec.set_text("U");
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "<s>ONEU");
}

TEST_F(ChatTest, RenderPromptShowsWhatGenerateReads) {
  ASSERT_TRUE(server_.Upload("one", "ONE").ok());
  const auto render = [&](const v1::GenerationSpec& spec) {
    v1::RenderPromptRequest request;
    *request.mutable_spec() = spec;
    grpc::ClientContext context;
    rendered_.Clear();
    return stub_->RenderPrompt(&context, request, &rendered_);
  };
  v1::GenerationSpec spec;
  spec.add_documents("one");
  Add(*spec.mutable_messages(), "user", "U");
  ASSERT_TRUE(render(spec).ok());
  EXPECT_EQ(rendered_.text(), "user:[one:ONE]U|>");
  ASSERT_TRUE(Generate(spec).ok());
  const std::vector<int32_t> ids(rendered_.token_ids().begin(), rendered_.token_ids().end());
  EXPECT_EQ(ids, server_.engine().submitted().back().prompt);
  EXPECT_EQ(server_.engine().submitted().size(), 1u) << "RenderPrompt generates nothing";

  spec.set_text("a");
  ASSERT_TRUE(render(spec).ok());
  EXPECT_EQ(rendered_.text(), "<s>ONEa");
  spec.set_documents(0, "nowhere");
  EXPECT_EQ(Details(render(spec)).reason, "DOCUMENT_NOT_FOUND");
  spec.clear_documents();
  spec.set_model("other");
  EXPECT_EQ(Details(render(spec)).reason, "MODEL_NOT_FOUND");
  spec.clear_model();
  spec.mutable_token_ids()->add_ids(-1);
  EXPECT_EQ(Details(render(spec)).field, "spec.token_ids");
  // What never fits is refused as Generate refuses it.
  spec.set_text("a");
  absl::Status never = absl::OutOfRangeError("input: keys and values need too many bytes");
  never.SetPayload(kLimitPayload, absl::Cord("memory"));
  never.SetPayload(kFieldPayload, absl::Cord("input"));
  server_.engine().set_submit_error(never);
  const grpc::Status refused = render(spec);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Details(refused).reason, "MEMORY_TOO_SMALL");
  EXPECT_EQ(Details(refused).field, "spec.text");
  EXPECT_EQ(refused.error_message(), "spec.text: keys and values need too many bytes");
}

TEST_F(ChatTest, DocumentsStandBeforeTheFirstUserMessage) {
  ASSERT_TRUE(server_.Upload("one", "ONE").ok());
  ASSERT_TRUE(server_.Upload("two", "TWO!").ok());
  v1::GenerationSpec spec;
  Add(*spec.mutable_messages(), "system", "S");
  Add(*spec.mutable_messages(), "user", "U");
  Add(*spec.mutable_messages(), "user", "V");
  spec.add_documents("one");
  spec.add_documents("two");
  spec.set_framing(v1::FRAMING_NONE);
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "system:S|user:ONETWO!U|user:V|>");
  // What the same documents share with other questions ends where they end.
  const RequestSpec submitted = server_.engine().submitted().back();
  EXPECT_THAT(submitted.shared_prefixes, ElementsAre(17, 21));
}

TEST_F(ChatTest, BadMessagesAreNamed) {
  const auto field_of = [&](const std::function<void(v1::Messages&)>& change) {
    v1::GenerationSpec spec;
    Add(*spec.mutable_messages(), "user", "U");
    change(*spec.mutable_messages());
    const grpc::Status status = Generate(spec);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    const std::string applied = Details(Apply(spec.messages())).field;
    const std::string field = Details(status).field;
    EXPECT_EQ(absl::StrCat("spec.", applied), field);
    return field;
  };
  EXPECT_EQ(field_of([](auto& m) { m.clear_messages(); }), "spec.messages");
  EXPECT_EQ(field_of([](auto& m) {
              for (int i = 0; i < 10000; ++i) Add(m, "user", "");
            }),
            "spec.messages.messages");
  EXPECT_EQ(field_of([](auto& m) { m.mutable_messages(0)->clear_role(); }),
            "spec.messages.messages[0].role");
  EXPECT_EQ(field_of([](auto& m) { Add(m, std::string(65, 'r'), ""); }),
            "spec.messages.messages[1].role");
  EXPECT_EQ(field_of([](auto& m) { m.mutable_messages(0)->set_name(std::string(257, 'n')); }),
            "spec.messages.messages[0].name");
  EXPECT_EQ(
      field_of([](auto& m) { m.mutable_messages(0)->set_tool_call_id(std::string(257, 'n')); }),
      "spec.messages.messages[0].tool_call_id");
  EXPECT_EQ(field_of([](auto& m) {
              m.mutable_messages(0)->set_tool_calls(std::string((1 << 20) + 1, ' '));
            }),
            "spec.messages.messages[0].tool_calls");
  EXPECT_EQ(field_of([](auto& m) { m.set_tools(std::string((1 << 20) + 1, ' ')); }),
            "spec.messages.tools");
  EXPECT_EQ(field_of([](auto& m) { m.set_template_options(std::string((1 << 20) + 1, ' ')); }),
            "spec.messages.template_options");
  // What the engine refuses.
  EXPECT_EQ(field_of([](auto& m) { m.set_tools("bad"); }), "spec.messages.tools");
  EXPECT_EQ(field_of([](auto& m) { Add(m, "bad", ""); }), "spec.messages");
}

TEST_F(ChatTest, WithoutATemplateContentsAreJoined) {
  server_.engine().set_chat_template(false);
  v1::GenerationSpec spec;
  Add(*spec.mutable_messages(), "", "a");
  Add(*spec.mutable_messages(), "user", "b");
  ASSERT_TRUE(Generate(spec).ok());
  EXPECT_EQ(LastPrompt(), "<s>a\nb");

  spec.mutable_messages()->set_tools("[]");
  EXPECT_EQ(Details(Generate(spec)).field, "spec.messages.tools");
  const grpc::Status status = Apply(spec.messages());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Details(status).reason, "UNSUPPORTED");
  EXPECT_THAT(status.error_message(), HasSubstr("send text"));
}

TEST_F(ChatTest, TheModelsSamplingIsTheDefault) {
  SamplingParams defaults;
  defaults.temperature = 0.5f;
  defaults.top_p = 0.75f;
  defaults.top_k = 20;
  defaults.min_p = 0.25f;
  defaults.repetition_penalty = 1.5f;
  server_.engine().set_default_sampling(defaults);
  v1::GenerationSpec spec;
  spec.set_text("x");
  ASSERT_TRUE(Generate(spec).ok());
  SamplingParams used = server_.engine().submitted().back().sampling;
  EXPECT_EQ(used.temperature, 0.5f);
  EXPECT_EQ(used.top_p, 0.75f);
  EXPECT_EQ(used.top_k, 20);
  EXPECT_EQ(used.min_p, 0.25f);
  EXPECT_EQ(used.repetition_penalty, 1.5f);
  EXPECT_EQ(used.max_tokens, 256);

  spec.mutable_sampling()->set_temperature(0);
  spec.mutable_sampling()->set_top_k(0);
  ASSERT_TRUE(Generate(spec).ok());
  used = server_.engine().submitted().back().sampling;
  EXPECT_EQ(used.temperature, 0);
  EXPECT_EQ(used.top_k, 0);
  EXPECT_EQ(used.top_p, 0.75f);

  grpc::ClientContext context;
  v1::GetModelResponse response;
  ASSERT_TRUE(server_.models()->GetModel(&context, v1::GetModelRequest(), &response).ok());
  EXPECT_TRUE(response.model().has_chat_template());
  EXPECT_EQ(response.model().default_sampling().top_p(), 0.75f);
  EXPECT_EQ(response.model().default_sampling().repetition_penalty(), 1.5f);
}

// Every door says it.
TEST_F(ChatTest, AFoldedSystemMessageIsTold) {
  v1::GenerationSpec spec;
  Add(*spec.mutable_messages(), "system", "S");
  Add(*spec.mutable_messages(), "user", "U");
  for (const bool folded : {false, true}) {
    server_.engine().set_refuses_system(folded);
    ASSERT_TRUE(Apply(spec.messages()).ok());
    EXPECT_EQ(applied_.system_folded(), folded);

    v1::RenderPromptRequest render;
    *render.mutable_spec() = spec;
    grpc::ClientContext render_context;
    ASSERT_TRUE(stub_->RenderPrompt(&render_context, render, &rendered_).ok());
    EXPECT_EQ(rendered_.system_folded(), folded);

    v1::PlanRequest plan;
    *plan.mutable_spec() = spec;
    v1::PlanResponse planned;
    grpc::ClientContext plan_context;
    ASSERT_TRUE(stub_->Plan(&plan_context, plan, &planned).ok());
    EXPECT_EQ(planned.system_folded(), folded);

    v1::GenerateRequest generate;
    *generate.mutable_spec() = spec;
    v1::GenerateResponse generated;
    grpc::ClientContext generate_context;
    ASSERT_TRUE(stub_->Generate(&generate_context, generate, &generated).ok());
    EXPECT_EQ(generated.completion().origin().system_folded(), folded);

    v1::AskManyRequest many;
    Add(*many.mutable_spec()->mutable_messages(), "system", "S");
    many.add_questions("U");
    grpc::ClientContext many_context;
    const auto reader = stub_->AskMany(&many_context, many);
    v1::AskManyResponse event;
    bool told = false;
    while (reader->Read(&event)) told |= event.event().origin().system_folded();
    ASSERT_TRUE(reader->Finish().ok());
    EXPECT_EQ(told, folded);
  }
}

}  // namespace
}  // namespace annulus::server
