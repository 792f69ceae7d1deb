// gguf_files FOLDER: writes the GGUF files that the tests make of the goldens into a folder, as
// GOLDEN_as_ARCHITECTURE.gguf, and prints their names. tests/golden/gguf_judge.py asks it.
#include <fstream>
#include <iostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/model/files/safetensors.h"
#include "kernels/base/status_macros.h"
#include "tests/engine/gguf/gguf_checkpoint.h"

namespace annulus::testing {
namespace {

absl::Status WriteFile(const GgufCase& of, const std::string& folder) {
  ANNULUS_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(of.directory()));
  ANNULUS_ASSIGN_OR_RETURN(const auto source, SafetensorsCheckpoint::Open(of.directory()));
  GgufWriter writer;
  WriteGgufMetadata(of, config, writer);
  WriteGgufTokens(config.vocabulary, writer);
  WriteGgufTensors(of, config, *source, writer);
  const std::string name = absl::StrCat(TestName(of), ".gguf");
  std::ofstream file(absl::StrCat(folder, "/", name), std::ios::binary);
  file << writer.File() << std::flush;
  if (!file) return absl::UnknownError(absl::StrCat(folder, "/", name, " cannot be written"));
  std::cout << name << "\n";
  return absl::OkStatus();
}

}  // namespace
}  // namespace annulus::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: gguf_files FOLDER\n";
    return 2;
  }
  for (const annulus::testing::GgufCase& one : annulus::testing::kGgufCases) {
    if (const absl::Status status = annulus::testing::WriteFile(one, argv[1]); !status.ok()) {
      std::cerr << one.golden << ": " << status << "\n";
      return 1;
    }
  }
  return 0;
}
