#include "engine/grammar/compiler/character_class.h"

#include <algorithm>
#include <utility>

namespace annulus {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr CodePoints kSurrogates{0xD800, 0xDFFF};

}  // namespace

CharacterClass::CharacterClass(std::vector<CodePoints> ranges) {
  std::sort(ranges.begin(), ranges.end());
  const auto append = [this](char32_t first, char32_t last) {
    if (first > last) return;
    if (!ranges_.empty() && first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, last);
    } else {
      ranges_.push_back({first, last});
    }
  };
  for (const CodePoints& range : ranges) {
    append(range.first, std::min(range.last, char32_t{kSurrogates.first - 1}));
    append(std::max(range.first, char32_t{kSurrogates.last + 1}), std::min(range.last, kLast));
  }
}

CharacterClass CharacterClass::All() { return CharacterClass({{0, kLast}}); }

CharacterClass CharacterClass::Complement() const {
  std::vector<CodePoints> ranges;
  char32_t next = 0;
  for (const CodePoints& range : ranges_) {
    if (range.first > next) ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLast) ranges.push_back({next, kLast});
  return CharacterClass(std::move(ranges));
}

CharacterClass CharacterClass::Union(const CharacterClass& other) const {
  std::vector<CodePoints> ranges = ranges_;
  ranges.insert(ranges.end(), other.ranges_.begin(), other.ranges_.end());
  return CharacterClass(std::move(ranges));
}

CharacterClass CharacterClass::Intersection(const CharacterClass& other) const {
  std::vector<CodePoints> ranges;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const CodePoints both{std::max(a->first, b->first), std::min(a->last, b->last)};
    if (both.first <= both.last) ranges.push_back(both);
    (a->last < b->last) ? ++a : ++b;
  }
  return CharacterClass(std::move(ranges));
}

CharacterClass CharacterClass::Without(const CharacterClass& other) const {
  return Intersection(other.Complement());
}

bool CharacterClass::Contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [c](const CodePoints& range) { return range.first <= c && c <= range.last; });
}

}  // namespace annulus
