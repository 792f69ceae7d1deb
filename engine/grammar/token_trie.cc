#include "engine/grammar/token_trie.h"

#include <algorithm>

#include "engine/grammar/machine.h"
#include "engine/text/incremental_detokenizer.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

using Token = std::pair<std::string, int32_t>;

// The characters of a token that is plain, else 0.
int PlainCharacters(const std::string& bytes) {
  int characters = 0;
  for (const char byte : bytes) {
    if (IsUtf8Continuation(byte)) continue;
    if (!IsPlainByte(static_cast<uint8_t>(byte))) return 0;
    ++characters;
  }
  return FirstInvalidUtf8(bytes) ? 0 : characters;
}

// `tokens` in ascending order.
TokenTrie::Tree TreeOf(const std::vector<Token>& tokens) {
  TokenTrie::Tree tree;
  std::vector<uint32_t> path;  // nodes of the last token
  absl::string_view before;
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      TokenTrie::Tree::Node& node = tree.nodes[path.back()];
      node.after = static_cast<uint32_t>(tree.nodes.size());
      path.pop_back();
      if (!path.empty()) tree.nodes[path.back()].below |= node.below | ByteGroup(node.byte);
    }
  };
  for (const auto& [bytes, id] : tokens) {
    size_t shared = 0;
    while (shared < std::min(bytes.size(), before.size()) && bytes[shared] == before[shared]) {
      ++shared;
    }
    close(shared);
    for (size_t i = shared; i < bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(tree.nodes.size()));
      TokenTrie::Tree::Node node;
      node.first = static_cast<uint32_t>(tree.ids.size());
      node.depth = static_cast<uint16_t>(i + 1);
      node.byte = static_cast<uint8_t>(bytes[i]);
      tree.nodes.push_back(node);
    }
    ++tree.nodes[path.back()].ends;
    tree.ids.push_back(id);
    tree.depth = std::max(tree.depth, static_cast<uint16_t>(bytes.size()));
    before = bytes;
  }
  close(0);
  return tree;
}

}  // namespace

std::string MarkSpelling(int32_t id) {
  constexpr int32_t kBase = kMarkBegin - kFirstMarkByte;
  std::string bytes(1, static_cast<char>(kMarkBegin));
  for (int i = 0; i < kMarkDigits; ++i, id /= kBase) {
    bytes.push_back(static_cast<char>(kFirstMarkByte + id % kBase));
  }
  return bytes;
}

TokenTrie::TokenTrie(std::vector<Token> tokens, int32_t vocabulary, std::vector<Token> marks)
    : vocabulary_(vocabulary), offsets_(static_cast<size_t>(vocabulary) + 1) {
  constexpr size_t kLongest = 65535;
  std::erase_if(tokens, [](const Token& token) {
    return token.first.empty() || token.first.size() > kLongest ||
           std::any_of(token.first.begin(), token.first.end(),
                       [](char byte) { return static_cast<uint8_t>(byte) >= kFirstMarkByte; });
  });
  for (Token& mark : marks) {
    tokens.emplace_back(MarkSpelling(mark.second), mark.second);
    marks_.emplace(std::move(mark));
  }
  // Edges for marks are made only where there is the token.
  for (size_t byte = kFirstMarkByte; byte < 256; ++byte) single_bytes_.set(byte);
  std::sort(tokens.begin(), tokens.end(),
            [](const Token& a, const Token& b) { return a.second < b.second; });
  plain_rows_.assign(kMaxPlainCharacters, std::vector<uint32_t>(words()));
  std::vector<Token> plain;
  std::vector<Token> others;
  size_t next = 0;
  for (int32_t id = 0; id < vocabulary; ++id) {
    offsets_[static_cast<size_t>(id)] = static_cast<uint32_t>(bytes_.size());
    if (next == tokens.size() || tokens[next].second != id) continue;
    Token& token = tokens[next++];
    bytes_ += token.first;
    if (token.first.size() == 1) single_bytes_.set(static_cast<uint8_t>(token.first[0]));
    const int characters = PlainCharacters(token.first);
    if (characters == 0 || characters > kMaxPlainCharacters) {
      others.push_back(std::move(token));
      continue;
    }
    for (int most = characters; most <= kMaxPlainCharacters; ++most) {
      plain_rows_[static_cast<size_t>(most - 1)][static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    }
    plain.push_back(std::move(token));
  }
  ANNULUS_CHECK(next == tokens.size()) << "a token's id is outside of the vocabulary, or twice";
  offsets_.back() = static_cast<uint32_t>(bytes_.size());
  std::sort(plain.begin(), plain.end());
  std::sort(others.begin(), others.end());
  plain_ = TreeOf(plain);
  others_ = TreeOf(others);
}

TokenTrie TokenTrie::FromTokenizer(const Tokenizer& tokenizer, int32_t vocabulary,
                                   std::span<const int32_t> end_ids) {
  std::vector<Token> tokens;
  std::vector<Token> marks;
  const int32_t most = std::min(vocabulary, tokenizer.vocabulary_size());
  for (int32_t id = 0; id < most; ++id) {
    if (!tokenizer.HasToken(id)) continue;
    if (std::find(end_ids.begin(), end_ids.end(), id) != end_ids.end()) continue;
    if (tokenizer.IsControl(id)) {
      marks.emplace_back(TokenText(tokenizer, id), id);
      continue;
    }
    if (tokenizer.IsSpecial(id)) continue;
    DecodeState inside;
    inside.at_start = false;
    inside.before_tokens = false;
    std::string bytes;
    tokenizer.DecodeNext(id, &inside, &bytes);
    tokens.emplace_back(std::move(bytes), id);
  }
  return TokenTrie(std::move(tokens), vocabulary, std::move(marks));
}

std::string TokenTrie::MarkOf(absl::string_view text) const {
  const auto mark = marks_.find(text);
  return mark == marks_.end() ? "" : MarkSpelling(mark->second);
}

absl::string_view TokenTrie::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocabulary_) return "";
  const uint32_t begin = offsets_[static_cast<size_t>(id)];
  return absl::string_view(bytes_).substr(begin, offsets_[static_cast<size_t>(id) + 1] - begin);
}

std::span<const uint32_t> TokenTrie::PlainRow(uint32_t characters) const {
  ANNULUS_CHECK(characters > 0);
  return plain_rows_[std::min<size_t>(characters, kMaxPlainCharacters) - 1];
}

}  // namespace annulus
