// A tokenizer.json of any text, and what it makes of a short text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = annulus::LoadTokenizerJson(json, "tokenizer.json");
  if (!tokenizer.ok()) return 0;
  constexpr absl::string_view kText = "Hello, w\xC3\xB6rld 123!\n\n the\tend <s>\xE2\x82\xAC";
  const auto ids = (*tokenizer)->Encode(kText, /*add_special=*/true);
  if (!ids.ok()) return 0;
  // Ids of its own vocabulary, which it can turn back.
  for (const int32_t id : *ids) {
    if (!(*tokenizer)->HasToken(id)) abort();
  }
  (*tokenizer)->Decode(*ids, /*skip_special=*/false).IgnoreError();
  return 0;
}
