#ifndef ANNULUS_ENGINE_GRAMMAR_TOKEN_TRIE_H_
#define ANNULUS_ENGINE_GRAMMAR_TOKEN_TRIE_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "engine/text/tokenizer.h"
#include "kernels/ops/sampling.h"

namespace annulus {

// UTF-8 has no bytes from this one on: with them machines spell control tokens, which are no text.
inline constexpr uint8_t kFirstMarkByte = 0xF8;
// How control token `id` is spelled: kMarkBegin and kMarkDigits bytes below it.
inline constexpr uint8_t kMarkBegin = 0xFF;
inline constexpr int kMarkDigits = 8;
std::string MarkSpelling(int32_t id);

// Bytes that constraints tend to treat alike, as a bit.
constexpr uint8_t ByteGroup(uint8_t byte) {
  if (byte >= 'a' && byte <= 'z') return 1;
  if (byte >= 'A' && byte <= 'Z') return 2;
  if (byte >= '0' && byte <= '9') return 4;
  if (byte == ' ') return 8;
  if (byte > ' ' && byte < 0x7F) return 16;
  return byte < kFirstMarkByte ? 32 : 64;
}

// The tokens of a vocabulary by their bytes, for walks that find which of them a machine can read.
// Tokens that are whole plain characters (see IsPlainByte) are kept apart, since in most places
// inside a JSON string all of them are allowed, whatever else is: they have ready bit rows.
// Immutable, so threads may share it. Takes about 8 MB for 150,000 tokens.
class TokenTrie {
 public:
  // Tokens of more plain characters than this are kept with the others.
  static constexpr int kMaxPlainCharacters = 24;

  // A part of the tokens, in the order of their bytes.
  struct Tree {
    // A node for each beginning of a token, in depth-first order; the root is left out.
    struct Node {
      uint32_t after = 0;  // the first node that is not below this one
      uint32_t first = 0;  // in `ids`: tokens that end here come first, then those below
      uint16_t ends = 0;   // how many end here
      uint16_t depth = 0;  // bytes, including this one
      uint8_t byte = 0;
      uint8_t below = 0;  // ByteGroup of the bytes of all nodes below
    };
    std::vector<Node> nodes;
    std::vector<int32_t> ids;
    uint16_t depth = 0;  // of the longest token
  };

  // `tokens`: ids and their bytes. Tokens without bytes, with more than 65,535, or with a byte from
  // kFirstMarkByte on, are never allowed. `marks`: control tokens and their texts. `vocabulary`:
  // the entries of a row; ids must be below.
  TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens, int32_t vocabulary,
            std::vector<std::pair<std::string, int32_t>> marks = {});

  // The tokens of a tokenizer, as they decode inside a text; control tokens are marks. Those that
  // end the text are left out, and special ones that are no control tokens. `vocabulary`: the
  // model's, which may be larger or smaller.
  static TokenTrie FromTokenizer(const Tokenizer& tokenizer, int32_t vocabulary,
                                 std::span<const int32_t> end_ids = {});

  int32_t vocabulary() const { return vocabulary_; }
  size_t words() const { return static_cast<size_t>(SeenWords(vocabulary_)); }

  // The bytes of a token; empty for those that are never allowed.
  absl::string_view TokenBytes(int32_t id) const;

  // Bytes that are tokens by themselves.
  const std::bitset<256>& single_bytes() const { return single_bytes_; }
  // How a machine spells the control token with this text; empty if there is none.
  std::string MarkOf(absl::string_view text) const;

  const Tree& plain() const { return plain_; }
  const Tree& others() const { return others_; }
  // The bit row of plain tokens of at most `characters` characters, which is at least 1.
  std::span<const uint32_t> PlainRow(uint32_t characters) const;

 private:
  const int32_t vocabulary_;
  std::string bytes_;
  std::vector<uint32_t> offsets_;  // [vocabulary + 1]
  std::bitset<256> single_bytes_;
  absl::flat_hash_map<std::string, int32_t> marks_;
  Tree plain_;
  Tree others_;
  std::vector<std::vector<uint32_t>> plain_rows_;  // by characters - 1
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_TOKEN_TRIE_H_
