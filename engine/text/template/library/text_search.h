#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_TEXT_SEARCH_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_TEXT_SEARCH_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// Text search in time linear in both texts. std::string::find takes the product of their lengths
// for texts such as "aaaa..b".

namespace annulus::jinja {

// The first occurrence of `wanted` in `text` at or after `from`; npos if there is none.
size_t FindText(absl::string_view text, absl::string_view wanted, size_t from = 0);

// Iterates over the occurrences of `wanted` (not empty), from either end of a text, without
// overlaps. All of them together take linear time. The texts must outlive it.
class Occurrences {
 public:
  Occurrences(absl::string_view text, absl::string_view wanted, bool from_right);

  // The start of the next occurrence.
  std::optional<size_t> Next();

 private:
  const absl::string_view text_;
  const absl::string_view wanted_;
  const bool from_right_;
  std::string reversed_text_;
  std::string reversed_wanted_;
  size_t position_ = 0;  // in the text, or in the reversed one
};

}  // namespace annulus::jinja

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_LIBRARY_TEXT_SEARCH_H_
