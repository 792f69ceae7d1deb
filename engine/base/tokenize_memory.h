#ifndef ANNULUS_ENGINE_BASE_TOKENIZE_MEMORY_H_
#define ANNULUS_ENGINE_BASE_TOKENIZE_MEMORY_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace annulus {

// An upper bound of the heap that tokenizing a text takes at its peak, with its ids but without the
// text itself. Largest for texts without white space, as tokenizers cut a text there.
class TokenizeMemory {
 public:
  // Adds the next part of the text.
  void Add(absl::string_view text);
  size_t bytes() const;

  static size_t Of(absl::string_view text);

 private:
  size_t bytes_ = 0;
  size_t longest_ = 0;  // stretch without a place where white space begins
  size_t now_ = 0;      // of the stretch at the end
  bool space_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_TOKENIZE_MEMORY_H_
