#ifndef ANNULUS_TESTS_FUZZ_ENCODE_H_
#define ANNULUS_TESTS_FUZZ_ENCODE_H_

#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "engine/text/tokenizer.h"

namespace annulus::testing {

// Encodes a short text with what a fuzzer has loaded, and decodes the ids. Aborts if one of them is
// not in the vocabulary.
inline void EncodeShortText(const Tokenizer& tokenizer) {
  constexpr absl::string_view kText = "Hello, w\xC3\xB6rld 123!\n\n the\tend <s>\xE2\x82\xAC";
  const auto ids = tokenizer.Encode(kText, /*add_special=*/true);
  if (!ids.ok()) return;
  for (const int32_t id : *ids) {
    if (!tokenizer.HasToken(id)) abort();
  }
  tokenizer.Decode(*ids, /*skip_special=*/false).IgnoreError();
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_FUZZ_ENCODE_H_
