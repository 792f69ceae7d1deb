#ifndef ANNULUS_ENGINE_TIERS_DOCUMENT_SET_H_
#define ANNULUS_ENGINE_TIERS_DOCUMENT_SET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// A Bloom filter of 256 bits for a set of documents: each sets four bits that depend on its
// content. A set can seem to hold a document that it does not hold, so a deletion may remove too
// much, but never too little.
class DocumentSet {
 public:
  // `content` names the document's text, for example by a hash of it.
  void Add(absl::string_view content);
  void Add(const DocumentSet& others);
  // Whether it holds everything that `others` holds.
  bool Holds(const DocumentSet& others) const;
  bool empty() const { return bits_ == Bits{}; }

  // 64 hexadecimal digits.
  std::string Text() const;
  // Nothing for what Text would not give.
  static std::optional<DocumentSet> Parse(absl::string_view text);

  friend bool operator==(const DocumentSet&, const DocumentSet&) = default;

 private:
  using Bits = std::array<uint64_t, 4>;
  Bits bits_{};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DOCUMENT_SET_H_
