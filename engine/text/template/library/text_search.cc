#include "engine/text/template/library/text_search.h"

#include <cstring>

namespace annulus::jinja {

size_t FindText(absl::string_view text, absl::string_view wanted, size_t from) {
  if (from > text.size()) return absl::string_view::npos;
  if (wanted.empty()) return from;
  // One character needs no table, which would cost more than the search if matches are near.
  if (wanted.size() == 1) return text.find(wanted.front(), from);
  // The C library's: two-way search for long texts, and a bounded number of steps for each place
  // with short ones.
  const void* const found =
      memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  if (found == nullptr) return absl::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

Occurrences::Occurrences(absl::string_view text, absl::string_view wanted, bool from_right)
    : text_(text), wanted_(wanted), from_right_(from_right) {
  if (!from_right) return;
  reversed_text_.assign(text.rbegin(), text.rend());
  reversed_wanted_.assign(wanted.rbegin(), wanted.rend());
}

std::optional<size_t> Occurrences::Next() {
  const size_t found = from_right_ ? FindText(reversed_text_, reversed_wanted_, position_)
                                   : FindText(text_, wanted_, position_);
  if (found == absl::string_view::npos) return std::nullopt;
  position_ = found + wanted_.size();
  return from_right_ ? text_.size() - position_ : found;
}

}  // namespace annulus::jinja
