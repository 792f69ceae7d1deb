#ifndef ANNULUS_ENGINE_MEMORY_DOCUMENT_PAGES_H_
#define ANNULUS_ENGINE_MEMORY_DOCUMENT_PAGES_H_

#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/base/steady_time.h"
#include "engine/base/tenant_id.h"

namespace annulus {

// Names a tenant's document by 64 bits of a hash of the tenant and the document's content.
using DocumentTag = uint64_t;
DocumentTag TagOf(const TenantId& tenant, absl::string_view content);

// Where a prompt has a document.
struct TaggedDocument {
  DocumentTag tag = 0;
  int32_t begin = 0;  // its first token in the prompt
  friend bool operator==(const TaggedDocument&, const TaggedDocument&) = default;
};
using TaggedDocuments = std::vector<TaggedDocument>;

// At which places of the prefix index prompts with a document end, and which documents were
// forgotten when, so that requests from before leave nothing of them. Thread-safe.
class DocumentPages {
 public:
  // A place, opaque here.
  using Place = void*;

  // A prompt with those documents ends at `place`, with `end` tokens.
  void Add(const TaggedDocuments& documents, Place place, int32_t end);
  void Remove(const TaggedDocuments& documents, Place place, int32_t end);

  // Every place, as often as it was added.
  std::vector<Place> PlacesOf(DocumentTag tag) const;
  // The most tokens from a document's first one to the end of a prompt. 0: it is nowhere.
  int32_t TokensOf(DocumentTag tag) const;

  void Forget(DocumentTag tag, SteadyTime now);
  // Whether one of them was forgotten since `asked`. The latest 1024 are remembered; before the
  // oldest of those, all documents count as forgotten.
  bool WasForgotten(const TaggedDocuments& documents, SteadyTime asked) const;

  // Bytes of the heap, about.
  int64_t bytes() const;

 private:
  struct End {
    Place place = nullptr;
    int32_t tokens = 0;  // from the document's first one on
    friend bool operator==(const End&, const End&) = default;
  };
  struct Forgotten {
    DocumentTag tag = 0;
    SteadyTime at;
  };
  static constexpr size_t kMostForgotten = 1024;

  mutable std::mutex mutex_;
  std::unordered_map<DocumentTag, std::vector<End>> ends_;
  int64_t count_ = 0;  // of all ends
  std::deque<Forgotten> forgotten_;
  SteadyTime latest_given_up_ = SteadyTime::min();  // of `forgotten_`
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_DOCUMENT_PAGES_H_
