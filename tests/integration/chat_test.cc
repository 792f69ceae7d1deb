// An instruct model through the daemon: messages give the prompts of Transformers, and answer.
#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"
#include "tests/integration/daemon.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::server {
namespace {

using Json = nlohmann::ordered_json;

class DaemonChatTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto model = testing::TestData("models/stories260K");
    if (!model.has_value()) GTEST_SKIP() << "no stories260K";
    std::ifstream file(testing::TestFile("golden/chat_templates/served.json"));
    golden_ = Json::parse(file);
    for (const char* name :
         {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
      std::filesystem::copy(*model / name, directory_.path());
    }
    directory_.Write("chat_template.jinja", golden_.at("template").get<std::string>());
    directory_.Write("generation_config.json",
                     R"({"eos_token_id": [1, 2], "do_sample": false, "top_k": 7})");
    daemon_ = std::make_unique<Daemon>(
        std::vector<std::string>{"--model", directory_.path(), "--served-model-name", "tiny",
                                 "--ranks", "2", "--kv-memory", "64MiB"});
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    channel_ = grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::InferenceService::NewStub(channel_);
  }

  static v1::Messages ToMessages(const Json& one) {
    v1::Messages messages;
    for (const Json& message : one.at("messages")) {
      v1::Message& added = *messages.add_messages();
      added.set_role(message.at("role"));
      if (message.contains("content")) added.set_content(message.at("content"));
      if (message.contains("reasoning_content")) {
        added.set_reasoning(message.at("reasoning_content"));
      }
      if (message.contains("tool_calls")) added.set_tool_calls(message.at("tool_calls").dump());
    }
    const Json& options = one.at("options");
    if (options.contains("tools")) messages.set_tools(options.at("tools").dump());
    if (options.contains("hurry")) messages.set_template_options(options.dump());
    if (options.contains("add_generation_prompt")) {
      messages.set_add_generation_prompt(options.at("add_generation_prompt"));
    }
    return messages;
  }

  v1::GenerateResponse Generate(const v1::GenerationSpec& spec) {
    v1::GenerateRequest request;
    *request.mutable_spec() = spec;
    grpc::ClientContext context;
    v1::GenerateResponse response;
    const grpc::Status status = inference_->Generate(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  v1::UploadDocumentResponse Upload(const std::string& name, const std::string& text,
                                    const std::string& title = "") {
    const auto documents = v1::DocumentService::NewStub(channel_);
    grpc::ClientContext context;
    v1::UploadDocumentResponse uploaded;
    const auto writer = documents->UploadDocument(&context, &uploaded);
    v1::UploadDocumentRequest part;
    part.mutable_header()->set_name(name);
    part.mutable_header()->set_title(title);
    writer->Write(part);
    part.mutable_chunk()->set_data(text);
    writer->Write(part);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return uploaded;
  }

  testing::TempDirectory directory_;
  Json golden_;
  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
};

TEST_F(DaemonChatTest, MessagesGiveWhatTransformersGives) {
  for (const Json& one : golden_.at("cases")) {
    v1::ApplyChatTemplateRequest request;
    *request.mutable_messages() = ToMessages(one);
    grpc::ClientContext context;
    v1::ApplyChatTemplateResponse applied;
    const grpc::Status status = inference_->ApplyChatTemplate(&context, request, &applied);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(applied.text(), one.at("text").get<std::string>());
    const std::vector<int32_t> ids(applied.token_ids().begin(), applied.token_ids().end());
    EXPECT_EQ(ids, one.at("token_ids").get<std::vector<int32_t>>());

    // The answer to messages is the answer to those ids.
    v1::GenerationSpec spec;
    spec.mutable_sampling()->set_max_tokens(8);
    *spec.mutable_messages() = request.messages();
    const v1::GenerateResponse to_messages = Generate(spec);
    spec.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
    const v1::GenerateResponse to_ids = Generate(spec);
    EXPECT_EQ(to_messages.completion().usage().prompt_tokens(), static_cast<int64_t>(ids.size()));
    EXPECT_EQ(std::vector<int32_t>(to_messages.token_ids().begin(), to_messages.token_ids().end()),
              std::vector<int32_t>(to_ids.token_ids().begin(), to_ids.token_ids().end()));
  }
}

TEST_F(DaemonChatTest, QuestionsAboutOneDocumentShareItsKeysAndValues) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "Lily had a red ball. ";
  const v1::UploadDocumentResponse uploaded = Upload("story", text);

  v1::GenerationSpec spec;
  spec.add_documents("story");
  spec.mutable_sampling()->set_max_tokens(4);
  v1::Message& message = *spec.mutable_messages()->add_messages();
  message.set_role("user");
  message.set_content("What did Lily have?");
  EXPECT_EQ(Generate(spec).completion().usage().cached_tokens(), 0);
  message.set_content("Who had a ball?");
  EXPECT_GT(Generate(spec).completion().usage().cached_tokens(),
            uploaded.document().token_count() - 64);
  // Another document behind it, and the same one behind another.
  Upload("tale", "Tom saw a big dog. ");
  spec.add_documents("tale");
  EXPECT_GT(Generate(spec).completion().usage().cached_tokens(),
            uploaded.document().token_count() - 64);
  spec.mutable_documents()->SwapElements(0, 1);
  EXPECT_LT(Generate(spec).completion().usage().cached_tokens(), 64);
}

TEST_F(DaemonChatTest, DocumentsHaveFramesAndNoControlTokens) {
  Upload("story", "Lily had a red ball. </s><s>", "li\"ly.txt");
  v1::RenderPromptRequest request;
  v1::GenerationSpec& spec = *request.mutable_spec();
  spec.add_documents("story");
  v1::Message& message = *spec.mutable_messages()->add_messages();
  message.set_role("user");
  message.set_content("What did Lily have?");
  const auto render = [&] {
    grpc::ClientContext context;
    v1::RenderPromptResponse response;
    const grpc::Status status = inference_->RenderPrompt(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  };
  const v1::RenderPromptResponse framed = render();
  EXPECT_THAT(framed.text(), ::testing::HasSubstr("# Document 1: li\\\"ly.txt\n\n"));
  EXPECT_THAT(framed.text(), ::testing::HasSubstr("\n\n# End of document 1\n\n"));
  EXPECT_THAT(framed.text(), ::testing::HasSubstr("Question: What did Lily have?"));
  spec.clear_documents();
  const v1::RenderPromptResponse without = render();
  // Beginning and end of text: as many as without the document, which holds both as text.
  for (const int32_t control : {1, 2}) {
    EXPECT_EQ(std::count(framed.token_ids().begin(), framed.token_ids().end(), control),
              std::count(without.token_ids().begin(), without.token_ids().end(), control));
  }
  EXPECT_EQ(Generate(spec).completion().usage().prompt_tokens(), without.token_ids_size());
}

TEST_F(DaemonChatTest, TheModelSaysWhatIsItsOwn) {
  grpc::ClientContext context;
  v1::GetModelResponse response;
  ASSERT_TRUE(v1::ModelService::NewStub(channel_)->GetModel(&context, {}, &response).ok());
  EXPECT_TRUE(response.model().has_chat_template());
  EXPECT_THAT(response.model().end_of_text_ids(), ::testing::ElementsAre(1, 2));
  EXPECT_EQ(response.model().default_sampling().temperature(), 0);
  EXPECT_EQ(response.model().default_sampling().top_k(), 7);
}

TEST(DaemonCheckTest, BadTemplatesAndSamplingAreRefusedAtLoad) {
  const auto model = testing::TestData("models/stories260K");
  if (!model.has_value()) GTEST_SKIP() << "no stories260K";
  const testing::TempDirectory directory;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
    std::filesystem::copy(*model / name, directory.path());
  }
  const auto check = [&directory](bool refused) {
    Program program({testing::BuildFolder() / "annulusd", "--check", "--model", directory.path()});
    const bool said = program.WaitForOutput("\n", std::chrono::seconds(30));
    EXPECT_TRUE(said);
    EXPECT_EQ(program.WaitForExit(std::chrono::seconds(30)).value_or(0) != 0, refused);
    return program.output();
  };
  directory.Write("chat_template.jinja", "\n{% for m in messages %}");
  EXPECT_THAT(check(true), ::testing::HasSubstr("chat_template.jinja:2: the template ends"));
  std::filesystem::remove(directory.path() / "chat_template.jinja");
  directory.Write("generation_config.json", R"({"top_p": "most"})");
  EXPECT_THAT(check(true), ::testing::HasSubstr("generation_config.json: top_p is \"most\""));
  directory.Write("generation_config.json", R"({"top_p": 1.5})");
  EXPECT_THAT(check(false), ::testing::HasSubstr("top_p is 1.5, which is out of range; 1 is used"));
}

}  // namespace
}  // namespace annulus::server
