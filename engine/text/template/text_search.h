#ifndef ANNULUS_ENGINE_TEXT_TEMPLATE_TEXT_SEARCH_H_
#define ANNULUS_ENGINE_TEXT_TEMPLATE_TEXT_SEARCH_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

// Searching text for text in time linear in both, whatever they are. std::string's own find takes
// the product of their lengths for texts such as "aaaa..b".

namespace annulus::jinja {

// Where `wanted` first occurs in `text` at `from` or behind it; npos where it does not.
size_t FindText(absl::string_view text, absl::string_view wanted, size_t from = 0);

// The occurrences of `wanted`, which is not empty, from one end of a text to the other. None
// overlap. All of them together take linear time. The texts must outlive it.
class Occurrences {
 public:
  Occurrences(absl::string_view text, absl::string_view wanted, bool from_right);

  // Where the next one begins.
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

#endif  // ANNULUS_ENGINE_TEXT_TEMPLATE_TEXT_SEARCH_H_
