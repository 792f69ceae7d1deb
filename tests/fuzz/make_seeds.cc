// Writes what the fuzzers begin with, a folder for each: fuzz_seeds FOLDER. Made by the writers of
// the tests, so that a change of a format brings new seeds by itself.
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "engine/codec/step_codec.h"
#include "engine/gguf/gguf_model.h"
#include "engine/text/sentencepiece/sentencepiece_file.h"
#include "tests/engine/codec/plan_example.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/engine/model/safetensors_writer.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

namespace fs = std::filesystem;
using testing::GgufNumber;
using testing::GgufWriter;

void Write(const fs::path& path, absl::string_view content) {
  fs::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.exceptions(std::ios::failbit | std::ios::badbit);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
}

// The character map of a sentencepiece model among the goldens.
std::string GoldenCharacterMap() {
  std::ifstream file(testing::TestFile("engine/text/golden/small/unigram_map.model"),
                     std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  return ParseSentencePieceFile(bytes).value().character_map;
}

// Writes a tokenizer of the kind, with what only that kind reads: merges, bytes, a character map.
// Returns the size of its vocabulary.
int64_t SetTokenizer(absl::string_view kind, GgufWriter& writer) {
  using Type = SentencePieceFile::Type;
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  const auto add = [&](std::string token, Type type) {
    tokens.push_back(std::move(token));
    types.push_back(static_cast<int32_t>(type));
  };
  add("<s>", Type::kControl);
  for (const char* token : {"a", "b", "ab", "\u0120", "\u2581", "c"}) add(token, Type::kNormal);
  add("<user>", Type::kUserDefined);
  if (kind == "gpt2") {
    writer.Set("tokenizer.ggml.pre", "gpt-2");
    writer.Set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
  } else {
    writer.Set("tokenizer.ggml.unknown_token_id", static_cast<uint32_t>(tokens.size()));
    add("<unk>", Type::kUnknown);
  }
  if (kind == "llama") {
    for (int byte = 0; byte < 256; ++byte) add(absl::StrFormat("<0x%02X>", byte), Type::kByte);
  }
  if (kind == "t5") {
    const std::string map = GoldenCharacterMap();
    writer.Raw("tokenizer.ggml.precompiled_charsmap", 9,
               absl::StrCat(GgufNumber<uint32_t>(0), GgufNumber<uint64_t>(map.size()), map));
  }
  std::vector<float> scores(tokens.size());
  std::iota(scores.rbegin(), scores.rend(), -static_cast<float>(scores.size()));
  writer.Set("tokenizer.ggml.model", kind);
  writer.Set("tokenizer.ggml.tokens", tokens);
  writer.Set("tokenizer.ggml.token_type", types);
  writer.Set("tokenizer.ggml.scores", scores);
  writer.Set("tokenizer.ggml.bos_token_id", 0u);
  writer.Set("tokenizer.ggml.add_bos_token", true);
  writer.Set("tokenizer.chat_template", "{% for m in messages %}{{ m.content }}{% endfor %}");
  return std::ssize(tokens);
}

// A whole tiny model: one layer with a hidden size of 32, matrices of one type.
std::string GgufModelFile(const char* architecture, const char* tokenizer, uint32_t type,
                          size_t block_bytes) {
  GgufWriter writer;
  const std::string prefix = absl::StrCat(architecture, ".");
  writer.Set("general.architecture", architecture);
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, uint32_t>>{{"embedding_length", 32},
                                                     {"block_count", 1},
                                                     {"feed_forward_length", 32},
                                                     {"attention.head_count", 2},
                                                     {"attention.head_count_kv", 1},
                                                     {"attention.key_length", 16},
                                                     {"context_length", 64}}) {
    writer.Set(prefix + key, value);
  }
  writer.Set(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  writer.Set(prefix + "rope.freq_base", 10000.0f);
  const int64_t vocabulary = SetTokenizer(tokenizer, writer);
  const auto matrix = [&](const char* name, int64_t rows) {
    writer.AddTensor(name, {rows, 32}, type,
                     std::string(static_cast<size_t>(rows) * block_bytes, '\x11'));
  };
  matrix("token_embd.weight", vocabulary);
  matrix("blk.0.attn_q.weight", 32);
  matrix("blk.0.attn_k.weight", 16);
  matrix("blk.0.attn_v.weight", 16);
  matrix("blk.0.attn_output.weight", 32);
  matrix("blk.0.ffn_gate.weight", 32);
  matrix("blk.0.ffn_up.weight", 32);
  matrix("blk.0.ffn_down.weight", 32);
  for (const char* name :
       {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    writer.AddFloats(name, {32}, std::vector<float>(32, 1.0f));
  }
  return writer.File();
}

// Throws if the model or its tokenizer does not load: the fuzzer would begin with a refused file.
void WriteModel(const fs::path& path, const std::string& content) {
  Write(path, content);
  const GgufModel model = OpenGgufModel(path.string(), GgufTensors::Codes::kKeep).value();
  LoadGgufTokenizer(model.tokenizer, path.string()).value();
}

void WriteGguf(const fs::path& folder) {
  WriteModel(folder / "llama_q4_1", GgufModelFile("llama", "gpt2", 3, 20));
  WriteModel(folder / "qwen3_q8_0", GgufModelFile("qwen3", "gpt2", 8, 34));
  WriteModel(folder / "gemma3_f16", GgufModelFile("gemma3", "llama", 1, 64));
  WriteModel(folder / "olmo2_mxfp4", GgufModelFile("olmo2", "t5", 39, 17));
}

void WriteSafetensors(const fs::path& folder) {
  const std::string file = testing::SafetensorsFile(
      {{"a", {2, 3}, std::vector<float>(6)}, {"model.layers.0.b", {4}, std::vector<float>(4)}});
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const uint64_t data_bytes = file.size() - sizeof(header) - header;
  Write(folder / "two", absl::StrCat(GgufNumber(data_bytes), file.substr(sizeof(header), header)));
  Write(folder / "none", absl::StrCat(GgufNumber(uint64_t{0}), "{\"__metadata__\":{\"k\":\"v\"}}"));
}

void WriteTokenizers(const fs::path& folder) {
  Write(folder / "byte_level", testing::ByteLevelTokenizer().dump());
  Write(folder / "byte_fallback", testing::ByteFallbackTokenizer().dump());
}

void WritePlans(const fs::path& folder) {
  Write(folder / "chunk", EncodePlan(testing::Plan(), testing::Limits()).value());
  Write(folder / "empty", EncodePlan({}, testing::Limits()).value());
}

// The template that tests serve, and every construct that goldens have.
void WriteTemplates(const fs::path& folder) {
  using Json = nlohmann::ordered_json;
  const auto read = [](const std::string& name) {
    std::ifstream file(testing::TestFile("golden/chat_templates/" + name));
    return Json::parse(file);
  };
  const Json constructs = read("constructs.json");
  const std::string variables = constructs.at("variables").dump();
  int number = 0;
  for (const Json& golden : constructs.at("goldens")) {
    const std::string source = golden.at("template").get<std::string>();
    Write(folder / absl::StrCat("construct_", number++), source + '\0' + variables);
  }
  Write(folder / "served",
        read("served.json").at("template").get<std::string>() + '\0' + variables);
}

void WriteConstraints(const fs::path& folder) {
  Write(folder / "object", R"(0{"type":"object","properties":{"a":{"type":"string","maxLength":3},)"
                           R"("b":{"type":"array","items":{"$ref":"#"},"minItems":1}},)"
                           R"("required":["a"],"additionalProperties":false})");
  Write(folder / "members", R"(0{"patternProperties":{"^x":{"type":"null"}},"required":["k"],)"
                            R"("additionalProperties":{"enum":[1,"a",[true]]}})");
  Write(folder / "numbers", R"(0{"anyOf":[{"type":"integer","minimum":-12,"maximum":105},)"
                            R"({"type":"number","exclusiveMinimum":0.5,"exclusiveMaximum":2}]})");
  Write(folder / "strings", R"(0{"allOf":[{"pattern":"^[a-z]+\\d*$"},{"minLength":2}],)"
                            R"("type":"string","format":"date"})");
  Write(folder / "union", R"(0{"$defs":{"l":{"type":"object","properties":{"k":{"const":"l"}},)"
                          R"("required":["k"]}},"oneOf":[{"$ref":"#/$defs/l"},{"type":"null"}]})");
  Write(folder / "regex", "2(?:[A-Z][a-z]+ ){1,4}\\d{4}|[^\\s]{0,80}x*?");
  Write(folder / "choices", "3yesno");
}

void WriteDocuments(const fs::path& folder) {
  fs::create_directories(folder);
  for (const auto& entry : fs::directory_iterator(testing::TestFile("client/read/fixtures"))) {
    if (entry.is_regular_file()) {
      fs::copy(entry.path(), folder, fs::copy_options::overwrite_existing);
    }
  }
}

// As wire_fuzz.cc reads them: a message of one byte is expected of rank 1, comes and is received.
void WriteFrames(const fs::path& folder) {
  const std::string expect("\0\0\2\1\1", 5), receive("\1\0", 2);
  const std::string frame("\4\0\0\2\0\0\1\1x", 9);
  Write(folder / "expected", expect + frame + receive);
  Write(folder / "early", frame + expect + receive);
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  annulus::WriteGguf(folder / "gguf_fuzz");
  annulus::WriteSafetensors(folder / "safetensors_header_fuzz");
  annulus::WriteTokenizers(folder / "tokenizer_json_fuzz");
  annulus::WritePlans(folder / "plan_codec_fuzz");
  annulus::WriteTemplates(folder / "chat_template_fuzz");
  annulus::WriteConstraints(folder / "grammar_fuzz");
  annulus::WriteDocuments(folder / "read_fuzz");
  annulus::WriteFrames(folder / "wire_fuzz");
  return 0;
}
