#ifndef ANNULUS_ENGINE_MEMORY_PREFIX_INDEX_H_
#define ANNULUS_ENGINE_MEMORY_PREFIX_INDEX_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/memory/document_pages.h"
#include "engine/memory/evicted_pages.h"
#include "engine/memory/page_book.h"

namespace annulus {

// A page that holds positions first_position onwards.
struct PrefixPage {
  int32_t first_position = 0;
  PageId id;
};

// Pages of one prefix, one list per cache group, each ascending by position.
using PrefixPages = std::vector<std::vector<PrefixPage>>;

// Which pages hold the keys and values of which beginnings of text, so that a prompt which begins
// like an earlier one need not be computed again. Prefixes are whole pages of tokens, keyed by a
// chain of SHA-256 over the pages' tokens whose root is the identity of the keys and values (model,
// dtypes, layout, tenant); tokens are compared on a hit, so a collision is a miss.
//
// A full group keeps every page of a prefix. A window group keeps only the pages before a
// checkpoint: a prefix length at which Insert was called. With window groups a hit therefore ends
// at a checkpoint; without, at any page. The index is a keeper of its pages in the book; the least
// recently used prefixes are given back by Evict, longest first, and what requests hold last.
// Written pages never change. Not thread-safe: the coordinator's.
class PrefixIndex {
 public:
  // `group_windows`: per cache group 0 for full, else the window in tokens. `book` must outlive the
  // index.
  PrefixIndex(int32_t page_tokens, std::vector<int32_t> group_windows, PageBook& book);
  ~PrefixIndex() { Clear(); }
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  struct Hit {
    int32_t tokens = 0;  // a multiple of page_tokens
    PrefixPages groups;
    ContentHash end{};  // names the prefix, for Pin
  };
  // How far a text and the known text that it has most in common with are the same, and what stands
  // behind.
  struct Nearest {
    int32_t whole = 0;     // tokens in whole pages that both have
    int32_t common = 0;    // those, and the tokens of the page behind up to the first other one
    bool differs = false;  // the known text has another token at `common`
    bool evicted = false;  // the text's page behind `whole` was known, and Evict gave it back
  };
  // The longest known prefix of `tokens` for which every group has what it needs, or nothing. It
  // counts as used now. Whoever wants its pages must hold them before the index is changed.
  std::optional<Hit> Find(absl::string_view identity, std::span<const int32_t> tokens,
                          Nearest* nearest = nullptr);

  // The same without finding anything: nothing counts as used. Of more than 256 known texts that go
  // on behind `whole`, the latest 256 are compared.
  Nearest Look(absl::string_view identity, std::span<const int32_t> tokens) const;

  // Where an Insert of a text ended, so that the next one of that text and identity looks at what
  // is new alone. Of no other text.
  struct Mark {
    ContentHash digest{};
    int32_t tokens = 0;
  };

  // Makes `tokens` (whole pages, at least one) a known prefix and a checkpoint, computed with
  // `coverage` (see PageBook::Keep). `page_at(group, first)` gives the page of that group that
  // begins at position `first`, complete or cached; it is asked for the full groups' pages that are
  // new, and for the window groups' pages that the row at tokens.size() can see. `documents`: those
  // that the prompt has, for Forget; ones that begin behind `tokens` do not count.
  void Insert(absl::string_view identity, std::span<const int32_t> tokens,
              std::optional<double> coverage,
              const std::function<PageId(int group, int32_t first)>& page_at, Mark* mark = nullptr,
              const TaggedDocuments& documents = {});

  // Gives back prefixes until `enough()`; false when none is left and it still is not. Pages that
  // a request holds stay with it; so prefixes with such pages, and what they begin with, go only
  // when all others have gone. Those that are pinned, and what they begin with, stay.
  bool Evict(const std::function<bool()>& enough);

  // Evict passes by the known prefix that a Hit found, until Unpin was called as often.
  void Pin(const ContentHash& end);
  // One that Clear took is not known any more.
  void Unpin(const ContentHash& end);

  // Gives back the pages that are there for prompts with the document alone: those that hold it,
  // follow it or lead to it. None of them may be pinned.
  void Forget(DocumentTag document);
  DocumentPages& documents() { return documents_; }
  const DocumentPages& documents() const { return documents_; }

  void Clear();

  // Bytes of the heap that the known prefixes take, beside the pages: to within a tenth. And those
  // that remembering the others takes.
  int64_t bytes() const;
  int64_t evicted_bytes() const { return evicted_.bytes(); }

 private:
  using Digest = ContentHash;  // of all tokens up to a page's end, and the identity
  struct DigestHash {
    size_t operator()(const Digest& digest) const;
  };
  struct Node {
    Digest digest;
    std::vector<int32_t> tokens;              // of this page
    std::vector<PageId> full;                 // [full group in order]
    std::optional<PrefixPages> window_pages;  // [window group in order]; present at a checkpoint
    std::list<Node*>::iterator use;
    uint64_t scope = 0;  // EvictedPages::ScopeOf
    int32_t end = 0;     // tokens up to the page's end
    int32_t pins = 0;
    // Of each prompt that ends here, or ended behind here before its pages went, once: the
    // documents that it has up to here. At least one where no page follows.
    std::vector<TaggedDocuments> prompts;
    Node* parent = nullptr;  // of the page before; null: the first
    Node* child = nullptr;   // the latest of those that go on from here, in a list by `older`
    Node* older = nullptr;
    Node* newer = nullptr;
  };

  static Digest Root(absl::string_view identity);
  Digest Next(const Digest& digest, std::span<const int32_t> page) const;
  // The nodes of the longest known prefix; those of `path` are known to begin it.
  std::vector<Node*> Walk(absl::string_view identity, std::span<const int32_t> tokens,
                          std::vector<Node*> path = {}) const;
  Nearest Behind(const std::vector<Node*>& path, absl::string_view identity,
                 std::span<const int32_t> tokens) const;
  std::vector<Node*> PathTo(Node* node) const;
  void Touch(const std::vector<Node*>& path);
  static void Link(Node* node, Node* parent);
  static void Unlink(const Node& node);
  // A prompt ends at the node.
  void AddPrompt(Node* node, const TaggedDocuments& documents);
  void DropPrompts(Node* node);
  void EvictOne(Node* node);
  void Remove(Node* node);
  void Keep(PageId id, const Digest& digest, std::optional<double> coverage);
  void Unkeep(const Node& node);
  template <typename Use>
  static void ForEachPage(const Node& node, const Use& use);
  // Whether no request holds any of the node's pages.
  bool Unused(const Node& node) const;
  Hit MakeHit(const std::vector<Node*>& path) const;

  const int32_t page_tokens_;
  const std::vector<int32_t> windows_;
  PageBook& book_;
  int64_t kept_ = 0;  // as often as the index keeps pages: checkpoints nearby share windows' pages
  std::unordered_map<Digest, std::unique_ptr<Node>, DigestHash> nodes_;
  // Least recently used first. A parent is always used after its children, so the first is a leaf.
  std::list<Node*> uses_;
  EvictedPages evicted_;
  DocumentPages documents_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PREFIX_INDEX_H_
