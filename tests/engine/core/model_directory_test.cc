// Whole model directories, each with one thing wrong: what `annulusd --check` says of them. The
// parsers' own tests try more of each kind; here every file of a directory is one among others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/api.h"
#include "engine/loading/loaded_model.h"
#include "engine/model/files/safetensors.h"
#include "engine/prompt/chat.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "nlohmann/json.hpp"
#include "tests/support/float8_directory.h"
#include "tests/support/plain_options.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTokenizer[] = R"({
  "added_tokens": [
    {"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "<s>", "special": true},
    {"id": 2, "content": "</s>", "special": true}],
  "normalizer": {"type": "NFC"},
  "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\w+|\\W+"}, "behavior": "Isolated"},
  "post_processor": null,
  "decoder": {"type": "Fuse"},
  "model": {"type": "BPE", "unk_token": "<unk>", "merges": ["a b"],
            "vocab": {"<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "b": 4, "ab": 5}}})";
constexpr char kModelTemplate[] =
    "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ModelDirectory : public ::testing::Test {
 protected:
  ModelDirectory() {
    const auto golden = testing::TestFile("golden/llama_mha");
    directory_.Write("config.json", ReadFile(golden / "config.json"));
    directory_.Write("model.safetensors", ReadFile(golden / "model.safetensors"));
    directory_.Write("tokenizer.json", kTokenizer);
    directory_.Write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
    directory_.Write("chat_template.jinja", kModelTemplate);
    directory_.Write("generation_config.json", R"({"eos_token_id": [2, 3], "temperature": 0.5})");
    RegisterCpuKernels(kernels_);
  }

  absl::StatusOr<LoadedModel> Load(int max_context = 0) {
    EngineOptions options = testing::PlainOptions();
    options.model = directory_.path().string();
    options.max_context = max_context;
    return LoadModel(options, *backend_, kernels_);
  }

  // What loading says where `file` has `to` for `from`.
  std::string Refusal(const std::string& file, const std::string& from, const std::string& to) {
    const std::string before = ReadFile(directory_.path() / file);
    EXPECT_TRUE(absl::StrContains(before, from)) << file << " has no " << from;
    directory_.Write(file, absl::StrReplaceAll(before, {{from, to}}));
    const auto loaded = Load();
    directory_.Write(file, before);
    EXPECT_FALSE(loaded.ok()) << file << " with " << to;
    return std::string(loaded.status().message());
  }

  testing::TempDirectory directory_;
  std::unique_ptr<Backend> backend_ = CreateCpuBackend().value();
  KernelRegistry kernels_;
};

TEST_F(ModelDirectory, ActivationsNeedWeightsOfTheirDtype) {
  EngineOptions options = testing::PlainOptions();
  options.model = directory_.path().string();
  for (const Activations activations : {Activations::kInt8, Activations::kFp8}) {
    options.activations = activations;
    options.weights_dtype = DType::kBF16;
    const std::string name(ActivationsName(activations));
    EXPECT_THAT(std::string(LoadModel(options, *backend_, kernels_).status().message()),
                ::testing::AllOf(HasSubstr(name + " activations need weights in " + name),
                                 HasSubstr("these are bf16"), HasSubstr("--weights-dtype " + name),
                                 HasSubstr("--activations float")));
    for (const DType weights : WeightsFor(activations)) {
      options.weights_dtype = weights;
      const auto loaded = LoadModel(options, *backend_, kernels_);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      EXPECT_EQ(loaded->info.weights_dtype, weights);
      EXPECT_EQ(loaded->info.activations, activations);
      EXPECT_EQ(loaded->ranks.activations, activations);
    }
  }
}

TEST_F(ModelDirectory, KeysAndValuesAreBf16UnlessWeightsAreF32) {
  EngineOptions options = testing::PlainOptions();
  options.model = directory_.path().string();
  for (const auto& [weights, kv] : {std::pair{DType::kF32, DType::kF32},
                                    {DType::kBF16, DType::kBF16},
                                    {DType::kF16, DType::kBF16},
                                    {DType::kI8, DType::kBF16}}) {
    options.weights_dtype = weights;
    const auto loaded = LoadModel(options, *backend_, kernels_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->info.kv_dtype, kv) << DTypeName(weights);
  }
  options.weights_dtype.reset();
  const ModelInfo as_stored = LoadModel(options, *backend_, kernels_)->info;
  EXPECT_EQ(as_stored.kv_dtype,
            as_stored.weights_dtype == DType::kF32 ? DType::kF32 : DType::kBF16);
  options.kv_dtype = DType::kI8;
  EXPECT_EQ(LoadModel(options, *backend_, kernels_)->info.kv_dtype, DType::kI8);
}

// The second matrix of the gated block has the most inputs.
TEST_F(ModelDirectory, LayersMayBeTooWideForInt8Activations) {
  directory_.Write(
      "config.json",
      absl::StrReplaceAll(ReadFile(directory_.path() / "config.json"),
                          {{"\"intermediate_size\": 100", "\"intermediate_size\": 131104"},
                           {"\"vocab_size\": 131", "\"vocab_size\": 512"}}));
  EngineOptions options = testing::PlainOptions();
  options.model = "random:" + (directory_.path() / "config.json").string();
  options.activations = Activations::kInt8;
  options.weights_dtype = DType::kI8;
  EXPECT_THAT(std::string(LoadModel(options, *backend_, kernels_).status().message()),
              HasSubstr("a layer has 131104 inputs; allowed: at most 131072"));
}

// Weights in float8 serve at once with inputs in float8; the scales of inputs that such checkpoints
// have are not used: every token has one of its own.
TEST_F(ModelDirectory, Float8WeightsAreServedAsTheyAreStored) {
  const testing::TempDirectory stored;
  testing::WriteFloat8Directory(testing::TestFile("golden/llama_mha"),
                                testing::Float8Scales::kTensor, stored);
  directory_.Write("model.safetensors", ReadFile(stored.path() / "model.safetensors"));
  directory_.Write(
      "config.json",
      absl::StrReplaceAll(ReadFile(stored.path() / "config.json"),
                          {{"\"attention_bias\"",
                            "\"quantization_config\": {\"quant_method\": \"fp8\", "
                            "\"activation_scheme\": \"static\"}, \"attention_bias\""}}));
  EngineOptions options = testing::PlainOptions();
  options.model = directory_.path().string();
  for (const Activations activations : {Activations::kFloat, Activations::kFp8}) {
    options.activations = activations;
    const auto loaded = LoadModel(options, *backend_, kernels_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->info.weights_dtype, DType::kF8E4M3);
    EXPECT_EQ(loaded->info.weights_error, 0);
    EXPECT_EQ(loaded->info.activations, activations);
    EXPECT_EQ(loaded->ranks.weights.embedding.dtype, DType::kF32);
    EXPECT_LT(loaded->info.weights_bytes, 4 * static_cast<size_t>(loaded->info.parameters));
  }
}

TEST_F(ModelDirectory, LoadsAsItIs) {
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->info.end_of_text_ids, (std::vector<int32_t>{2, 3}));
  EXPECT_TRUE(loaded->info.has_chat_template);
  EXPECT_GE(loaded->info.weights_bytes, 4 * static_cast<size_t>(loaded->info.parameters));
}

struct Fault {
  const char* file;
  const char* from;
  const char* to;
  std::vector<const char*> says;  // besides the file's name
};

TEST_F(ModelDirectory, EveryFaultIsNamedByFileKeyValueAndWhatIsAllowed) {
  const Fault faults[] = {
      {"config.json",
       "\"num_attention_heads\": 3",
       "\"num_attention_heads\": 4",
       {"num_key_value_heads is 3", "a divisor of num_attention_heads, 4"}},
      {"config.json",
       "\"num_hidden_layers\": 2",
       "\"num_hidden_layers\": 0",
       {"num_hidden_layers is 0", "from 1 to 1024"}},
      {"config.json", "10000.0", "NaN", {"rope_parameters.rope_theta is NaN", "from 1 to 1e+38"}},
      {"config.json",
       "\"rope_type\": \"default\"",
       "\"rope_type\": \"spiral\"",
       {"rope_parameters.rope_type is \"spiral\"", "\"longrope\""}},
      {"config.json",
       "LlamaForCausalLM",
       "Qwen3NextForCausalLM",
       {"architectures is [\"Qwen3NextForCausalLM\"]",
        "with the model_type \"llama\": a list with LlamaForCausalLM"}},
      {"generation_config.json",
       "[2, 3]",
       "[2, 131]",
       {"eos_token_id is [2,131]", "token ids from 0 to 130"}},
      {"generation_config.json", "0.5", "[]", {"temperature is []", "allowed"}},
      {"tokenizer.json", "\"a b\"", "\"a c\"", {"model.merges[0]", "\"c\""}},
      {"tokenizer.json", "\"ab\": 5", "\"ab\": 4", {"model.vocab", "two tokens have the id 4"}},
      {"tokenizer.json",
       "\"id\": 1, \"content\": \"<s>\"",
       "\"id\": 2, \"content\": \"<s>\"",
       {"added_tokens[1]", "two ids, 1 and 2"}},
      {"tokenizer.json", "\"BPE\"", "\"WordPiece\"", {"model.type", "WordPiece", "Unigram"}},
      {"tokenizer.json", "NFC", "NFX", {"normalizer.type", "NFX", "NFKC"}},
      {"tokenizer.json", "\\\\w+|", "(\\\\w+|", {"pre_tokenizer.pattern.Regex"}},
      {"tokenizer_config.json", "{\"bos", "{bos", {"JSON"}},
      {"chat_template.jinja", "{% endfor %}", "", {":1:", "endfor"}},
  };
  for (const Fault& fault : faults) {
    const std::string refusal = Refusal(fault.file, fault.from, fault.to);
    EXPECT_THAT(refusal, HasSubstr((directory_.path() / fault.file).string()));
    for (const char* part : fault.says) EXPECT_THAT(refusal, HasSubstr(part));
  }
}

// What fits no tensor names the directory, the tensor, and both shapes or what is missing.
TEST_F(ModelDirectory, TensorsThatConfigJsonDoesNotDescribe) {
  const std::string name = directory_.path().string() + ": ";
  const std::string longer = Refusal("config.json", "\"vocab_size\": 131", "\"vocab_size\": 132");
  EXPECT_THAT(longer, HasSubstr(name + "tensor model.embed_tokens.weight has the shape [131, 48]"));
  EXPECT_THAT(longer, HasSubstr("[132, 48]"));
  const std::string deeper =
      Refusal("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3");
  EXPECT_THAT(deeper, HasSubstr(name + "the checkpoint lacks 9 of the 30 tensors"));
  EXPECT_THAT(deeper, HasSubstr("model.layers.2."));
}

// What is odd and does no harm is served, and said.
TEST_F(ModelDirectory, WarningsAreKept) {
  EXPECT_TRUE(Load()->info.warnings.empty());
  directory_.Write("generation_config.json", R"({"temperature": 2.5, "top_k": -1})");
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->info.warnings,
              ::testing::ElementsAre(HasSubstr("temperature is 2.5"), HasSubstr("top_k is -1")));
  EXPECT_EQ(loaded->info.default_sampling.temperature, 2);
}

// A stored layer that config.json does not count, and biases that it switches off.
TEST_F(ModelDirectory, TensorsThatNothingUses) {
  const std::string name = directory_.path().string() + ": ";
  const std::string deep =
      Refusal("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
  EXPECT_THAT(deep, HasSubstr(name + "the checkpoint has 9 tensors of the decoder that"));
  const auto windows = testing::TestFile("golden/llama_windows");
  directory_.Write("config.json", ReadFile(windows / "config.json"));
  directory_.Write("model.safetensors", ReadFile(windows / "model.safetensors"));
  directory_.Write("generation_config.json", "{}");
  EXPECT_TRUE(Load().ok());
  EXPECT_THAT(Refusal("config.json", "\"attention_bias\": true", "\"attention_bias\": false"),
              HasSubstr("tensors of the decoder that config.json does not use: "
                        "model.layers.0.self_attn.k_proj.bias"));
}

TEST_F(ModelDirectory, AConversionsLossIsKnownLater) {
  EXPECT_FALSE(Load()->info.conversion_error.has_value());
  const std::string converted = (directory_.path() / "converted").string();
  const auto report = ConvertModelDirectory(directory_.path().string(), DType::kI8, converted);
  ASSERT_TRUE(report.ok()) << report.status();
  EngineOptions options = testing::PlainOptions();
  options.model = converted;
  const auto loaded = LoadModel(options, *backend_, kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->info.weights_error, 0);
  ASSERT_TRUE(loaded->info.conversion_error.has_value());
  EXPECT_GT(*loaded->info.conversion_error, 1e-4);
  options.model = directory_.path().string();
  options.weights_dtype = DType::kI8;
  EXPECT_NEAR(LoadModel(options, *backend_, kernels_)->info.weights_error,
              *loaded->info.conversion_error, 1e-9);
  directory_.Write("annulus_conversion.json", R"({"relative_error": "much"})");
  EXPECT_THAT(std::string(Load().status().message()),
              HasSubstr("annulus_conversion.json: relative_error is \"much\""));
}

// A special token without a row of the embedding is no reason to refuse the model; a usual one is.
TEST_F(ModelDirectory, TokensBeyondTheEmbedding) {
  EXPECT_THAT(
      Refusal("tokenizer.json", "\"ab\": 5", "\"ab\": 131"),
      HasSubstr("the tokenizer has the id 131, but config.json says vocab_size 131; allowed:"));
  directory_.Write(
      "tokenizer.json",
      absl::StrReplaceAll(kTokenizer, {{"\"added_tokens\": [",
                                        "\"added_tokens\": [{\"id\": 131, \"content\": "
                                        "\"<image>\", \"special\": true},"}}));
  const auto loaded = Load();
  EXPECT_TRUE(loaded.ok()) << loaded.status();
}

TEST_F(ModelDirectory, ContextBeyondTheTrainedLength) {
  EXPECT_THAT(std::string(Load(2049).status().message()),
              HasSubstr("max-context 2049 is above the model's trained length of 2048 tokens"));
  EXPECT_EQ(Load(2000)->info.max_context, 2000);
}

TEST_F(ModelDirectory, OtherFormatsAreNamed) {
  std::filesystem::remove(directory_.path() / "model.safetensors");
  directory_.Write("model.gguf", "GGUF");
  const std::string refusal(Load().status().message());
  EXPECT_THAT(refusal, HasSubstr("model.gguf is a GGUF file next to a config.json; to serve it, "));
  std::filesystem::remove(directory_.path() / "model.gguf");
  directory_.Write("pytorch_model.bin", "x");
  EXPECT_THAT(std::string(Load().status().message()),
              AllOf(HasSubstr("is a PyTorch pickle file, which is not supported; needed: "),
                    HasSubstr("F8_E4M3")));
}

TEST_F(ModelDirectory, WithoutTokenizerFilesItServesTokenIds) {
  std::filesystem::remove(directory_.path() / "tokenizer.json");
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->tokenizer->Encode("ab", false).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_THAT(loaded->info.description, HasSubstr("token ids only"));
}

// What only a text can show fails that text, and the model goes on.
TEST_F(ModelDirectory, AnExplodingPatternAndAnEndlessTemplateFailTheRequest) {
  directory_.Write("tokenizer.json",
                   absl::StrReplaceAll(kTokenizer, {{"\\\\w+|\\\\W+", "(a+)+$|b"}}));
  directory_.Write("chat_template.jinja",
                   "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}"
                   "{{ messages }}");
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const auto ids = loaded->tokenizer->Encode(std::string(5000, 'a') + "!", false);
  EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument) << ids.status();
  EXPECT_THAT(std::string(ids.status().message()), HasSubstr("(a+)+$|b"));
  EXPECT_TRUE(loaded->tokenizer->Encode("ab", false).ok());
  ChatRequest request;
  request.messages.resize(1);
  request.messages[0].role = "user";
  const auto chat = RenderChat(loaded->templates, *loaded->tokenizer, request, std::tm{},
                               CancelFlag::Never(), MemoryGrant::Unlimited());
  EXPECT_EQ(chat.status().code(), absl::StatusCode::kInvalidArgument) << chat.status();
  EXPECT_THAT(std::string(chat.status().message()), HasSubstr("chat_template.jinja:1: "));
}

// Processes that serve a model together have the same weights and tokens, whatever their pages.
TEST_F(ModelDirectory, TheFingerprintIsOfWeightsAndTokensAlone) {
  EngineOptions options = testing::PlainOptions();
  options.model = directory_.path().string();
  const auto fingerprint = [&] {
    const auto loaded = LoadModel(options, *backend_, kernels_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->fingerprint : "";
  };
  const std::string before = fingerprint();
  EXPECT_EQ(before.size(), 64u);
  options.page_tokens = 32;
  options.kernels = "cpu/reference";
  options.kv_dtype = DType::kF16;
  EXPECT_EQ(fingerprint(), before);
  options.weights_dtype = DType::kF16;
  EXPECT_NE(fingerprint(), before);
  options.weights_dtype.reset();
  const std::string weights = ReadFile(directory_.path() / "model.safetensors");
  std::string last_bit = weights;
  last_bit.back() = static_cast<char>(last_bit.back() ^ 1);
  const std::string config = ReadFile(directory_.path() / "config.json");
  const std::string swapped =
      absl::StrReplaceAll(kTokenizer, {{"\"a\": 3, \"b\": 4", "\"a\": 4, \"b\": 3"}});
  for (const auto& [name, good, other] :
       {std::array{std::string("model.safetensors"), weights, last_bit},
        {"config.json", config, config + " "},
        {"tokenizer.json", kTokenizer, swapped}}) {
    directory_.Write(name, other);
    EXPECT_NE(fingerprint(), before) << name;
    directory_.Write(name, good);
  }
  EXPECT_EQ(fingerprint(), before);
}

// Keys and values of a model may be reused for the same model alone: by what it is, not by where it
// lies.
TEST_F(ModelDirectory, TheIdentityIsOfEveryByteAndNotOfThePath) {
  EngineOptions options = testing::PlainOptions();
  options.model = directory_.path().string();
  const auto identity = [&] {
    const auto loaded = LoadModel(options, *backend_, kernels_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->identity : "";
  };
  const std::string before = identity();
  EXPECT_EQ(before.size(), 64u);
  std::set<std::string> seen = {before};
  const std::string file = ReadFile(directory_.path() / "model.safetensors");
  std::map<std::string, size_t> places;  // where each tensor's bytes begin in the file
  std::set<size_t> taken;
  {
    const auto checkpoint =
        SafetensorsCheckpoint::OpenFile(directory_.path() / "model.safetensors").value();
    for (const std::string& name : checkpoint->Names()) {
      std::string data(checkpoint->Describe(name)->bytes(), '\0');
      ASSERT_TRUE(checkpoint->Read(name, std::as_writable_bytes(std::span(data))).ok());
      size_t at = file.find(data);
      while (!taken.insert(at).second) at = file.find(data, at + 1);  // of equal tensors the next
      ASSERT_NE(at, std::string::npos) << name;
      places[name] = at;
    }
  }
  for (const auto& [name, at] : places) {
    std::string changed = file;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    directory_.Write("model.safetensors", changed);
    EXPECT_TRUE(seen.insert(identity()).second) << name;
  }
  directory_.Write("model.safetensors", file);
  const std::string config = ReadFile(directory_.path() / "config.json");
  directory_.Write("config.json", config + " ");
  EXPECT_TRUE(seen.insert(identity()).second);
  directory_.Write("config.json", config);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    options.kv_dtype = dtype;
    EXPECT_TRUE(seen.insert(identity()).second) << DTypeName(dtype);
    options.weights_dtype = dtype;
    EXPECT_TRUE(seen.insert(identity()).second) << DTypeName(dtype);
  }
  options = {};
  options.page_tokens = 32;
  options.model = directory_.path().string();
  EXPECT_TRUE(seen.insert(identity()).second);
  options.page_tokens = 64;
  options.kernels = "cpu/reference";
  EXPECT_TRUE(seen.insert(identity()).second);

  options.kernels = "";
  const testing::TempDirectory copy;
  std::filesystem::copy(directory_.path(), copy.path(), std::filesystem::copy_options::recursive);
  options.model = copy.path().string();
  EXPECT_EQ(identity(), before);
}

// One checkpoint gives other matrices with another --weights-dtype, though most are of the same
// type.
TEST_F(ModelDirectory, TheIdentityIsOfEveryMatrixAsItIsServed) {
  const std::string file = ReadFile(directory_.path() / "model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  nlohmann::json header = nlohmann::json::parse(file.substr(sizeof(length), length));
  std::string data;
  bool kept = false;
  for (auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    ASSERT_EQ(tensor["dtype"], "F32") << name;
    const size_t begin = sizeof(length) + length + tensor["data_offsets"][0].get<size_t>();
    const size_t end = sizeof(length) + length + tensor["data_offsets"][1].get<size_t>();
    const size_t at = data.size();
    const bool matrix = tensor["shape"].size() == 2 && name.find("layers") != std::string::npos;
    if (matrix && kept) {  // the upper half of an F32 is a BF16
      tensor["dtype"] = "BF16";
      for (size_t i = begin; i < end; i += 4) data.append(file, i + 2, 2);
    } else {
      kept = kept || matrix;
      data.append(file, begin, end - begin);
    }
    tensor["data_offsets"] = {at, data.size()};
  }
  const std::string text = header.dump();
  length = text.size();
  const std::string size(reinterpret_cast<const char*>(&length), sizeof(length));
  directory_.Write("model.safetensors", size + text + data);

  EngineOptions options = testing::PlainOptions();
  options.model = directory_.path().string();
  auto loaded = LoadModel(options, *backend_, kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->info.weights_dtype, DType::kBF16);
  const std::string as_stored = loaded->identity;
  options.weights_dtype = DType::kBF16;
  loaded = LoadModel(options, *backend_, kernels_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->info.weights_dtype, DType::kBF16);
  EXPECT_NE(loaded->identity, as_stored);
}

// How often each file of `directory` is opened until `work` returns.
template <typename Work>
std::map<std::string, int> CountOpens(const std::filesystem::path& directory, const Work& work) {
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  EXPECT_GE(inotify_add_watch(watch, directory.c_str(), IN_OPEN), 0);
  work();
  std::map<std::string, int> opens;
  alignas(inotify_event) std::array<char, 4096> events;
  for (ssize_t size = 0; (size = read(watch, events.data(), events.size())) > 0;) {
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, events.data() + at, sizeof(event));
      if (event.len > 0) ++opens[events.data() + at + sizeof(event)];
      at += static_cast<ssize_t>(sizeof(event) + event.len);
    }
  }
  close(watch);
  return opens;
}

// Who reads a file twice may read two states of it.
TEST_F(ModelDirectory, EachFileOfSettingsIsOpenedOnce) {
  directory_.Write("special_tokens_map.json", "{}");
  const auto opens = CountOpens(directory_.path(), [this] {
    const auto loaded = Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
  });
  for (const char* file :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
        "special_tokens_map.json", "chat_template.jinja"}) {
    const auto found = opens.find(file);
    EXPECT_EQ(found == opens.end() ? 0 : found->second, 1) << file;
  }
}

}  // namespace
}  // namespace annulus
