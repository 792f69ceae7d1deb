#include "engine/tiers/document_set.h"

#include <openssl/sha.h>

#include <cstddef>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace annulus {

void DocumentSet::Add(absl::string_view content) {
  constexpr int kBitsEach = 4;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> hash;
  SHA256(reinterpret_cast<const unsigned char*>(content.data()), content.size(), hash.data());
  for (int i = 0; i < kBitsEach; ++i) bits_[hash[i] / 64] |= uint64_t{1} << (hash[i] % 64);
}

void DocumentSet::Add(const DocumentSet& others) {
  for (size_t i = 0; i < bits_.size(); ++i) bits_[i] |= others.bits_[i];
}

bool DocumentSet::Holds(const DocumentSet& others) const {
  for (size_t i = 0; i < bits_.size(); ++i) {
    if ((bits_[i] & others.bits_[i]) != others.bits_[i]) return false;
  }
  return true;
}

std::string DocumentSet::Text() const {
  std::string text;
  for (const uint64_t word : bits_) absl::StrAppend(&text, absl::Hex(word, absl::kZeroPad16));
  return text;
}

std::optional<DocumentSet> DocumentSet::Parse(absl::string_view text) {
  DocumentSet set;
  if (text.size() != 16 * set.bits_.size()) return std::nullopt;
  for (size_t i = 0; i < set.bits_.size(); ++i) {
    if (!absl::SimpleHexAtoi(text.substr(16 * i, 16), &set.bits_[i])) return std::nullopt;
  }
  if (set.Text() != text) return std::nullopt;
  return set;
}

}  // namespace annulus
