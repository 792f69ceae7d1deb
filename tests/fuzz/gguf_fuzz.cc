// A GGUF file of any bytes: everything that serving reads of one before it computes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_model.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "tests/fuzz/encode.h"

namespace annulus {
namespace {

// Tensors may overlap nowhere, so all of them together are little more than the file.
constexpr size_t kMostTensorBytes = size_t{64} << 20;

void ReadAll(const std::string& path, GgufTensors::Codes codes) {
  const auto model = OpenGgufModel(path, codes);
  if (!model.ok()) return;
  const auto tokenizer = LoadGgufTokenizer(model->tokenizer, path);
  if (tokenizer.ok()) testing::EncodeShortText(**tokenizer);
  for (const std::string& name : model->tensors->Names()) {
    const auto info = model->tensors->Describe(name);
    if (!info.ok() || info->bytes() > kMostTensorBytes) continue;
    std::vector<std::byte> bytes(info->bytes());
    if (!model->tensors->Read(name, bytes).ok()) continue;
    const size_t third = bytes.size() / 3;
    if (!model->tensors->ReadRange(name, third, std::span(bytes).subspan(third)).ok()) abort();
  }
}

}  // namespace
}  // namespace annulus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A file without a name, opened by the link that /proc has of it.
  const int file = memfd_create("model.gguf", MFD_CLOEXEC);
  if (file < 0 || write(file, data, size) != static_cast<ssize_t>(size)) abort();
  const std::string path = absl::StrCat("/proc/self/fd/", file);
  annulus::ReadAll(path, annulus::GgufTensors::Codes::kWiden);
  annulus::ReadAll(path, annulus::GgufTensors::Codes::kKeep);
  close(file);
  return 0;
}
