// A tokenizer.json of any text, and what it makes of a short text.
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/encode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = annulus::LoadTokenizerJson(json, "tokenizer.json");
  if (tokenizer.ok()) annulus::testing::EncodeShortText(**tokenizer);
  return 0;
}
