#ifndef ANNULUS_TESTS_ENGINE_TEXT_SMALL_TOKENIZERS_H_
#define ANNULUS_TESTS_ENGINE_TEXT_SMALL_TOKENIZERS_H_

#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "engine/text/tokenizer.h"

namespace annulus::testing {

// A byte-level tokenizer.json in the manner of Llama 3 and Qwen: NFC, a split pattern, the 256
// bytes (id = byte value), a few merges, the special tokens "<|begin|>" (added in front) and
// "<|end|>", and the ordinary added token "<tool>".
nlohmann::json ByteLevelTokenizer();

// A tokenizer.json in the manner of Llama 2: "▁" for spaces and in front, <unk>, <s> (added in
// front), </s>, the 256 bytes <0xNN> (id = 3 + byte value), a few characters and merges.
nlohmann::json ByteFallbackTokenizer();

// Loads `json`; the test fails when it cannot be loaded.
std::unique_ptr<Tokenizer> Load(const nlohmann::json& json);

// The character that byte-level files write for `byte`.
std::string ByteLevelCharacter(int byte);

// `length` characters: a mixture of ASCII, white space, all planes, marks and repeated runs.
std::string RandomText(size_t length, std::mt19937* random);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_TEXT_SMALL_TOKENIZERS_H_
