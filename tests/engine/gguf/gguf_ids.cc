// gguf_ids FILE: reads a JSON array of texts from standard input and prints the array of their ids,
// by the tokenizer of a GGUF file or by a tokenizer.json (FILE.json), without special tokens around
// a text. tokenizer_ids_test.py compares them.
#include <cstdint>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "engine/text/text_file.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& path) {
  if (absl::EndsWith(path, ".json")) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string json, ReadTextFile(path));
    return LoadTokenizerJson(json, path);
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  ANNULUS_ASSIGN_OR_RETURN(const GgufTokenizerFiles files, MakeGgufTokenizer(*file));
  return LoadGgufTokenizer(files, path);
}

absl::Status PrintIds(const std::string& path) {
  ANNULUS_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Load(path));
  nlohmann::json all = nlohmann::json::array();
  for (const nlohmann::json& text : nlohmann::json::parse(std::cin)) {
    ANNULUS_ASSIGN_OR_RETURN(
        const std::vector<int32_t> ids,
        tokenizer->Encode(text.get_ref<const std::string&>(), /*add_special=*/false));
    all.push_back(ids);
  }
  std::cout << all << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace annulus

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gguf_ids FILE < TEXTS.json\n";
    return 2;
  }
  const absl::Status status = annulus::PrintIds(argv[1]);
  if (status.ok()) return 0;
  std::cerr << status.message() << "\n";
  return 1;
}
