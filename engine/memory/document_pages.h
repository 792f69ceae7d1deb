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

// Identifies a tenant's document: 64 bits of a hash of the tenant and the content.
using DocumentTag = uint64_t;
DocumentTag TagOf(const TenantId& tenant, absl::string_view content);

// A document and its place in a prompt.
struct TaggedDocument {
  DocumentTag tag = 0;
  int32_t begin = 0;  // its first token in the prompt
  friend bool operator==(const TaggedDocument&, const TaggedDocument&) = default;
};
using TaggedDocuments = std::vector<TaggedDocument>;

// Records where in the prefix index the prompts that contain a document end. Also records when
// documents were forgotten, so that requests made before that leave none of their pages in the
// index. Thread-safe.
class DocumentPages {
 public:
  // A node of the prefix index; opaque here.
  using NodeHandle = void*;

  // Records that a prompt with `documents` ends at `node`, `end` tokens long.
  void Add(const TaggedDocuments& documents, NodeHandle node, int32_t end);
  void Remove(const TaggedDocuments& documents, NodeHandle node, int32_t end);

  // Returns every node, as many times as it was added, in the order in which they were added.
  std::vector<NodeHandle> NodesOf(DocumentTag tag) const;
  // The longest run of tokens from the document's first token to the end of a prompt. 0: no prompt
  // has it.
  int32_t TokensOf(DocumentTag tag) const;

  void Forget(DocumentTag tag, SteadyTime now);
  // Whether any of `documents` was forgotten at or after `asked`. Remembers the latest 1024; for
  // times before the oldest of these, all documents count as forgotten.
  bool WasForgotten(const TaggedDocuments& documents, SteadyTime asked) const;

  // Approximate heap bytes.
  int64_t bytes() const;

 private:
  struct End {
    NodeHandle node = nullptr;
    int32_t tokens = 0;  // from the document's first token to the prompt's end
    friend bool operator==(const End&, const End&) = default;
  };
  struct Forgotten {
    DocumentTag tag = 0;
    SteadyTime at;
  };
  static constexpr size_t kMostForgotten = 1024;

  mutable std::mutex mutex_;
  std::unordered_map<DocumentTag, std::vector<End>> ends_;
  int64_t count_ = 0;  // number of all ends
  std::deque<Forgotten> forgotten_;
  // Time of the latest entry removed from `forgotten_`.
  SteadyTime latest_given_up_ = SteadyTime::min();
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_DOCUMENT_PAGES_H_
