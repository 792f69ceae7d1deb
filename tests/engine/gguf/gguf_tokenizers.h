#ifndef ANNULUS_TESTS_ENGINE_GGUF_GGUF_TOKENIZERS_H_
#define ANNULUS_TESTS_ENGINE_GGUF_GGUF_TOKENIZERS_H_

#include "absl/status/statusor.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_tokenizer.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/temp_directory.h"

namespace annulus::testing {

// The tokenizer of the file that `writer` has written so far.
inline absl::StatusOr<GgufTokenizerFiles> FilesOf(const GgufWriter& writer) {
  const TempDirectory directory;
  directory.Write("m", writer.File());
  const auto file = GgufFile::Open((directory.path() / "m").string());
  if (!file.ok()) return file.status();
  return MakeGgufTokenizer(**file);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_GGUF_GGUF_TOKENIZERS_H_
