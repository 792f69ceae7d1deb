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

// A page with the positions from first_position on.
struct PrefixPage {
  int32_t first_position = 0;
  PageId id;
};

// [cache group] pages of one prefix, ascending by position.
using PrefixPages = std::vector<std::vector<PrefixPage>>;

// Maps prefixes of token sequences to the pages that hold their keys and values, so that a prompt
// that begins like an earlier one need not be computed again. Prefixes consist of whole pages of
// tokens. The key is a chain of SHA-256 over the pages' tokens; its root is the identity of the
// keys and values (model, dtypes, layout, tenant). A hit also compares the tokens, so a hash
// collision is a miss.
//
// A full group keeps every page of a prefix. A window group keeps only the pages before a
// checkpoint, which is a prefix length at which Insert was called. So with window groups a hit ends
// at a checkpoint; without them, at any page.
//
// The index is a keeper of its pages in the book. Evict removes the least recently used prefixes,
// longest first; those with pages that requests hold come last. Written pages never change. Not
// thread-safe: only for the coordinator's thread.
class PrefixIndex {
 public:
  // `group_windows`: [cache group] 0: full attention; otherwise the window in tokens. `book` must
  // outlive the index.
  PrefixIndex(int32_t page_tokens, std::vector<int32_t> group_windows, PageBook& book);
  ~PrefixIndex() { Clear(); }
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  struct Hit {
    int32_t tokens = 0;  // a multiple of page_tokens
    PrefixPages groups;
    ContentHash end{};  // identifies the prefix for Pin
  };
  // How much a text has in common with the most similar known text, and why not more.
  struct Nearest {
    int32_t whole = 0;     // common tokens in whole pages
    int32_t common = 0;    // whole, plus equal tokens in the following page
    bool differs = false;  // the known text has a different token at `common`
    bool evicted = false;  // the text's page after `whole` was known and then evicted
  };
  // Returns the longest known prefix of `tokens` for which every group has its pages, and marks it
  // as used; nothing if there is none. The caller must hold the pages before the index changes.
  std::optional<Hit> Find(absl::string_view identity, std::span<const int32_t> tokens,
                          Nearest* nearest = nullptr);

  // Like Find, but only for the pages of full groups: a hit may end at any page, not only at a
  // checkpoint, and has no window pages. Nothing if all groups have windows.
  std::optional<Hit> FindFull(absl::string_view identity, std::span<const int32_t> tokens);

  // Returns what Find would set `nearest` to; marks nothing as used. Of the known texts that
  // continue after `whole`, compares the 256 latest.
  Nearest FindNearest(absl::string_view identity, std::span<const int32_t> tokens) const;

  // For a prompt whose first page is not known: returns the first position at which `tokens` differ
  // from the most similar known text that has the document, whatever that text's identity. Nothing
  // if no known text has the document; page_tokens if one that is compared has the same first page.
  // Compares 16 of the document's prompts, those that became known or lost their last pages latest:
  // if there are more, the most similar one may be older, and the result may then be too small.
  std::optional<int32_t> FirstDifference(DocumentTag document,
                                         std::span<const int32_t> tokens) const;

  // The same for the known texts under `identity`, whatever documents they have. Compares the first
  // pages of 256 texts, those whose first pages became known latest. Nothing if there is no text.
  std::optional<int32_t> FirstDifference(absl::string_view identity,
                                         std::span<const int32_t> tokens) const;

  // Where an Insert ended. Passed to the next Insert of the same text and identity, it limits the
  // work to the new tokens. Must not be used for another text.
  struct Mark {
    ContentHash digest{};
    int32_t tokens = 0;
    bool is_new = false;  // whether the call made the checkpoint; false if it was there before
  };

  // Makes `tokens` (one or more whole pages) a known prefix and a checkpoint. `coverage`: see
  // PageBook::Keep. `page_at(group, first)` returns the group's page that begins at position
  // `first`; it must be complete, loading or cached. It is called for new pages of full groups and,
  // if the checkpoint is new, for the window pages that the row at tokens.size() sees. `mark`: see
  // Mark; null: DropCheckpoint will not drop this checkpoint. `documents`: the prompt's documents,
  // for Forget; those that begin after `tokens` are ignored. If memory runs out, throws; some of
  // the prefix may then be known.
  void Insert(absl::string_view identity, std::span<const int32_t> tokens,
              std::optional<double> coverage,
              const std::function<PageId(int group, int32_t first)>& page_at, Mark* mark = nullptr,
              const TaggedDocuments& documents = {});

  // Drops the checkpoint at the end of a Mark's prefix: hits no longer end there, and the pages of
  // window groups lose this keeper. The prefix stays known. No-op if it is pinned or gone, or if an
  // Insert without a mark has asked for it too.
  void DropCheckpoint(const ContentHash& end);

  // Evicts prefixes until `enough()` is true. Returns false if nothing is left to evict. Pages that
  // requests hold are not freed, so prefixes with such pages, and the prefixes these extend, are
  // evicted last. Pinned prefixes, and the prefixes they extend, stay known; the latter may lose
  // their window pages, and so are no checkpoints any more. `only`: if not null, evicts prefixes of
  // this tenant alone.
  bool Evict(const std::function<bool()>& enough, const TenantId* only = nullptr);

  // Protects the prefix of a Hit from Evict until Unpin has been called as many times.
  void Pin(const ContentHash& end);
  // No-op if Clear removed the prefix.
  void Unpin(const ContentHash& end);

  // Removes the pages that exist only for prompts with the document: those before, in and after it
  // that no other prompt has. Pages of pinned prefixes stay, so unpin first.
  void Forget(DocumentTag document);
  DocumentPages& documents() { return documents_; }
  const DocumentPages& documents() const { return documents_; }

  // Removes the pages on these ranks, whose contents are lost, and all pages that follow them in
  // their prefixes. A checkpoint that lost window pages alone is no checkpoint any more. None of
  // these may be pinned. Throws if memory runs out; some may then still be known.
  void ForgetRanks(std::span<const int32_t> ranks);

  void Clear();

  // Heap bytes of the known prefixes, without their pages, within 10%. evicted_bytes: heap bytes
  // for remembering evicted pages.
  int64_t bytes() const;
  int64_t evicted_bytes() const { return evicted_.bytes(); }

 private:
  using Digest = ContentHash;  // over all tokens up to a page's end, and the identity
  struct DigestHash {
    size_t operator()(const Digest& digest) const;
  };
  struct Node {
    Digest digest;
    std::vector<int32_t> tokens;              // of this page
    std::vector<PageId> full;                 // [full group in order]
    std::optional<PrefixPages> window_pages;  // [window group in order]; only at a checkpoint
    std::list<Node*>::iterator use;
    uint64_t scope = 0;  // EvictedPages::ScopeOf
    int32_t end = 0;     // number of tokens up to the page's end
    int32_t pins = 0;
    bool is_counted_on = false;  // an Insert without a mark wants the checkpoint to stay
    // One entry per prompt that ends here, or whose later pages were evicted: its documents up to
    // here. Not empty if no page follows.
    std::vector<TaggedDocuments> prompts;
    Node* parent = nullptr;  // the previous page; null: this is the first
    Node* child = nullptr;   // the latest continuation; head of a list linked by `older`
    Node* older = nullptr;   // of the parent's continuations, or of the scope's first pages
    Node* newer = nullptr;
  };

  static Digest Root(absl::string_view identity);
  Digest Next(const Digest& digest, std::span<const int32_t> page) const;
  // The nodes of the longest known prefix. `path`: its first nodes, if already known.
  std::vector<Node*> Walk(absl::string_view identity, std::span<const int32_t> tokens,
                          std::vector<Node*> path = {}) const;
  Nearest NearestAfter(const std::vector<Node*>& path, absl::string_view identity,
                       std::span<const int32_t> tokens) const;
  std::vector<Node*> PathTo(Node* node) const;
  void Touch(const std::vector<Node*>& path);
  // The head of the list that the node is in.
  Node*& LatestBeside(const Node& node);
  // If `parent` is null, `firsts_` must have an entry for the node's scope.
  void Link(Node* node, Node* parent);
  void Unlink(const Node& node);
  // Records that a prompt ends at the node.
  void AddPrompt(Node* node, const TaggedDocuments& documents);
  void DropPrompts(Node* node);
  void EvictOne(Node* node);
  void Remove(Node* node);
  void Keep(PageId id, const Digest& digest, std::optional<double> coverage);
  void Unkeep(const Node& node);
  template <typename Use>
  static void ForEachPage(const Node& node, const Use& use);
  // Whether the node's pages are the tenant's. For a node without pages (all groups have windows),
  // the answer of the node before it.
  bool IsOf(const Node& node, const TenantId& tenant) const;
  void DropWindows(Node& node);  // it is no checkpoint any more
  // Whether no request holds any page of the node.
  bool Unused(const Node& node) const;
  // `windows`: with their pages; the path then ends at a checkpoint.
  Hit MakeHit(const std::vector<Node*>& path, bool windows) const;

  const int32_t page_tokens_;
  const std::vector<int32_t> windows_;
  PageBook& book_;
  int64_t kept_ = 0;  // Keep calls in effect: a page can be kept by several checkpoints
  std::unordered_map<Digest, std::unique_ptr<Node>, DigestHash> nodes_;
  // By scope, the latest first page; head of a list linked by `older`. Null if the first Insert of
  // a scope ran out of memory.
  std::unordered_map<uint64_t, Node*> firsts_;
  // Least recently used first. A parent counts as used after its children, so the first is a leaf.
  std::list<Node*> uses_;
  EvictedPages evicted_;
  DocumentPages documents_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PREFIX_INDEX_H_
