#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_CHARACTER_CLASS_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_CHARACTER_CLASS_H_

#include <compare>
#include <vector>

namespace annulus {

struct CodePoints {
  char32_t first = 0;
  char32_t last = 0;
  auto operator<=>(const CodePoints&) const = default;
};

// A set of Unicode scalar values: ascending ranges that neither overlap nor touch. Surrogates are
// never part of it.
class CharacterClass {
 public:
  CharacterClass() = default;
  // Any ranges, in any order; surrogates in them are left out.
  explicit CharacterClass(std::vector<CodePoints> ranges);

  static CharacterClass All();

  CharacterClass Complement() const;
  CharacterClass Union(const CharacterClass& other) const;
  CharacterClass Intersection(const CharacterClass& other) const;
  CharacterClass Without(const CharacterClass& other) const;

  bool Contains(char32_t c) const;
  // Whether every member of `other` is one of this class.
  bool Covers(const CharacterClass& other) const { return other.Without(*this).empty(); }
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePoints>& ranges() const { return ranges_; }

 private:
  std::vector<CodePoints> ranges_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_CHARACTER_CLASS_H_
