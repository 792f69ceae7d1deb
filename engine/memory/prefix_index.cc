#include "engine/memory/prefix_index.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr int kMostCompared = 256;        // pages that go on from one
constexpr int kMostPromptsCompared = 16;  // of a document, from their ends back to their beginnings
// Of one node. Beyond that, two prompts are treated as one with the documents of both, so that
// forgetting a document of either forgets it.
constexpr size_t kMostPrompts = 64;

// Those that begin before a prefix ends.
TaggedDocuments UpTo(const TaggedDocuments& documents, int32_t end) {
  TaggedDocuments some;
  for (const TaggedDocument& document : documents) {
    if (document.begin < end) some.push_back(document);
  }
  return some;
}

}  // namespace

size_t PrefixIndex::DigestHash::operator()(const Digest& digest) const {
  size_t value;
  std::memcpy(&value, digest.data(), sizeof(value));
  return value;
}

PrefixIndex::PrefixIndex(int32_t page_tokens, std::vector<int32_t> group_windows, PageBook& book)
    : page_tokens_(page_tokens), windows_(std::move(group_windows)), book_(book) {}

PrefixIndex::Digest PrefixIndex::Root(absl::string_view identity) {
  Digest digest;
  SHA256(reinterpret_cast<const unsigned char*>(identity.data()), identity.size(), digest.data());
  return digest;
}

PrefixIndex::Digest PrefixIndex::Next(const Digest& digest, std::span<const int32_t> page) const {
  std::vector<unsigned char> message(digest.size() + page.size_bytes());
  std::memcpy(message.data(), digest.data(), digest.size());
  std::memcpy(message.data() + digest.size(), page.data(), page.size_bytes());
  Digest next;
  SHA256(message.data(), message.size(), next.data());
  return next;
}

std::vector<PrefixIndex::Node*> PrefixIndex::Walk(absl::string_view identity,
                                                  std::span<const int32_t> tokens,
                                                  std::vector<Node*> path) const {
  Digest digest = path.empty() ? Root(identity) : path.back()->digest;
  for (size_t first = path.size() * page_tokens_; first + page_tokens_ <= tokens.size();
       first += page_tokens_) {
    const auto page = tokens.subspan(first, page_tokens_);
    digest = Next(digest, page);
    const auto found = nodes_.find(digest);
    if (found == nodes_.end()) break;
    if (!std::equal(page.begin(), page.end(), found->second->tokens.begin())) break;
    path.push_back(found->second.get());
  }
  return path;
}

// What a node's prefix begins with is known as long as the node is.
std::vector<PrefixIndex::Node*> PrefixIndex::PathTo(Node* node) const {
  std::vector<Node*> path;
  for (; node != nullptr; node = node->parent) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

void PrefixIndex::Touch(const std::vector<Node*>& path) {
  for (auto node = path.rbegin(); node != path.rend(); ++node) {
    uses_.splice(uses_.end(), uses_, (*node)->use);
  }
}

std::optional<PrefixIndex::Hit> PrefixIndex::Find(absl::string_view identity,
                                                  std::span<const int32_t> tokens,
                                                  Nearest* nearest) {
  std::vector<Node*> path = Walk(identity, tokens);
  if (nearest != nullptr) *nearest = NearestAfter(path, identity, tokens);
  const bool windows =
      std::any_of(windows_.begin(), windows_.end(), [](int32_t window) { return window > 0; });
  while (windows && !path.empty() && !path.back()->window_pages.has_value()) path.pop_back();
  if (path.empty()) return std::nullopt;
  Touch(path);
  return MakeHit(path, true);
}

std::optional<PrefixIndex::Hit> PrefixIndex::FindFull(absl::string_view identity,
                                                      std::span<const int32_t> tokens) {
  if (std::find(windows_.begin(), windows_.end(), 0) == windows_.end()) return std::nullopt;
  const std::vector<Node*> path = Walk(identity, tokens);
  if (path.empty()) return std::nullopt;
  Touch(path);
  return MakeHit(path, false);
}

PrefixIndex::Nearest PrefixIndex::FindNearest(absl::string_view identity,
                                              std::span<const int32_t> tokens) const {
  return NearestAfter(Walk(identity, tokens), identity, tokens);
}

PrefixIndex::Nearest PrefixIndex::NearestAfter(const std::vector<Node*>& path,
                                               absl::string_view identity,
                                               std::span<const int32_t> tokens) const {
  Nearest nearest;
  nearest.whole = nearest.common = static_cast<int32_t>(path.size()) * page_tokens_;
  const auto rest = tokens.subspan(nearest.whole);
  const Digest before = path.empty() ? Root(identity) : path.back()->digest;
  if (std::ssize(rest) >= page_tokens_) {
    const uint64_t scope = path.empty() ? EvictedPages::ScopeOf(before) : path.back()->scope;
    nearest.evicted = evicted_.Has(scope, Next(before, rest.first(page_tokens_)));
  }
  int left = kMostCompared;
  for (const Node* node = path.empty() ? nullptr : path.back()->child; node != nullptr && left > 0;
       node = node->older, --left) {
    const auto end =
        std::mismatch(rest.begin(), rest.end(), node->tokens.begin(), node->tokens.end()).first;
    const auto common = nearest.whole + static_cast<int32_t>(end - rest.begin());
    if (common < nearest.common) continue;
    nearest.differs = end != rest.end();  // else the known text goes on where this one ends
    nearest.common = common;
  }
  return nearest;
}

std::optional<int32_t> PrefixIndex::FirstDifference(DocumentTag document,
                                                    std::span<const int32_t> tokens) const {
  const std::vector<DocumentPages::NodeHandle> handles = documents_.NodesOf(document);
  std::optional<int32_t> longest;
  int left = kMostPromptsCompared;
  for (auto handle = handles.rbegin(); handle != handles.rend() && left > 0; ++handle, --left) {
    const Node* first = static_cast<const Node*>(*handle);
    while (first->parent != nullptr) first = first->parent;
    const auto end =
        std::mismatch(tokens.begin(), tokens.end(), first->tokens.begin(), first->tokens.end());
    if (end.first == tokens.end() || end.second == first->tokens.end()) return page_tokens_;
    longest = std::max(longest.value_or(0), static_cast<int32_t>(end.first - tokens.begin()));
  }
  return longest;
}

std::optional<int32_t> PrefixIndex::FirstDifference(absl::string_view identity,
                                                    std::span<const int32_t> tokens) const {
  const auto firsts = firsts_.find(EvictedPages::ScopeOf(Root(identity)));
  const Node* node = firsts == firsts_.end() ? nullptr : firsts->second;
  std::optional<int32_t> longest;
  for (int left = kMostCompared; node != nullptr && left > 0; node = node->older, --left) {
    const auto end =
        std::mismatch(tokens.begin(), tokens.end(), node->tokens.begin(), node->tokens.end()).first;
    if (end == tokens.end()) return page_tokens_;
    longest = std::max(longest.value_or(0), static_cast<int32_t>(end - tokens.begin()));
  }
  return longest;
}

PrefixIndex::Hit PrefixIndex::MakeHit(const std::vector<Node*>& path, bool windows) const {
  Hit hit;
  hit.tokens = static_cast<int32_t>(path.size()) * page_tokens_;
  hit.end = path.back()->digest;
  size_t full = 0;
  size_t window = 0;
  for (const int32_t width : windows_) {
    std::vector<PrefixPage>& pages = hit.groups.emplace_back();
    if (width == 0) {
      for (const Node* node : path) {
        pages.push_back({static_cast<int32_t>(pages.size()) * page_tokens_, node->full[full]});
      }
      ++full;
    } else if (windows) {
      pages = (*path.back()->window_pages)[window];
      ++window;
    }
  }
  return hit;
}

void PrefixIndex::Insert(absl::string_view identity, std::span<const int32_t> tokens,
                         std::optional<double> coverage,
                         const std::function<PageId(int group, int32_t first)>& page_at, Mark* mark,
                         const TaggedDocuments& documents) {
  ANNULUS_CHECK(!tokens.empty() && tokens.size() % page_tokens_ == 0) << tokens.size();
  std::vector<Node*> path;
  if (mark != nullptr && mark->tokens > 0 && mark->tokens <= std::ssize(tokens)) {
    const auto known = nodes_.find(mark->digest);
    if (known != nodes_.end()) path = PathTo(known->second.get());
  }
  path = Walk(identity, tokens, std::move(path));
  path.reserve(tokens.size() / page_tokens_);
  // However it ends, even for want of memory: evicting counts on the order of uses.
  const absl::Cleanup touch = [&] { Touch(path); };
  for (size_t i = path.size(); i < tokens.size() / page_tokens_; ++i) {
    const int32_t first = static_cast<int32_t>(i) * page_tokens_;
    const auto page = tokens.subspan(first, page_tokens_);
    const Digest before = path.empty() ? Root(identity) : path.back()->digest;
    const Digest digest = Next(before, page);
    if (nodes_.contains(digest)) return;  // other tokens with the same digest: leave them be
    auto made = std::make_unique<Node>();
    Node* const node = made.get();
    node->digest = digest;
    node->end = first + page_tokens_;
    node->scope = path.empty() ? EvictedPages::ScopeOf(before) : path.back()->scope;
    node->tokens.assign(page.begin(), page.end());
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (windows_[g] == 0) node->full.push_back(page_at(static_cast<int>(g), first));
    }
    std::list<Node*> use = {node};
    if (path.empty()) firsts_.try_emplace(node->scope, nullptr);
    nodes_.emplace(digest, std::move(made));  // memory runs out before this, or not at all
    node->use = use.begin();
    uses_.splice(uses_.end(), use);
    Link(node, path.empty() ? nullptr : path.back());
    for (const PageId id : node->full) Keep(id, digest, coverage);
    path.push_back(node);
  }
  Node* last = path.back();
  const bool is_new = !last->window_pages.has_value();
  if (is_new) {
    PrefixPages pages;
    for (size_t g = 0; g < windows_.size(); ++g) {
      if (windows_[g] == 0) continue;
      std::vector<PrefixPage>& group = pages.emplace_back();
      const int32_t end = static_cast<int32_t>(tokens.size());
      const int32_t oldest = std::max(0, end - windows_[g] + 1);
      for (int32_t first = oldest / page_tokens_ * page_tokens_; first < end;
           first += page_tokens_) {
        group.push_back({first, page_at(static_cast<int>(g), first)});
      }
    }
    // As above: it is a checkpoint with all of its pages, or none.
    last->window_pages = std::move(pages);
    for (const auto& group : *last->window_pages) {
      for (const PrefixPage& page : group) {
        Keep(page.id, path[page.first_position / page_tokens_]->digest, coverage);
      }
    }
  }
  last->is_counted_on = last->is_counted_on || mark == nullptr;
  AddPrompt(last, documents);
  if (mark != nullptr) *mark = {last->digest, static_cast<int32_t>(tokens.size()), is_new};
}

void PrefixIndex::DropCheckpoint(const ContentHash& end) {
  const auto found = nodes_.find(end);
  if (found == nodes_.end()) return;
  Node& node = *found->second;
  if (node.pins > 0 || node.is_counted_on || !node.window_pages.has_value()) return;
  DropWindows(node);
}

void PrefixIndex::DropWindows(Node& node) {
  for (const auto& group : *node.window_pages) {
    for (const PrefixPage& page : group) {
      book_.Unkeep(page.id);
      --kept_;
    }
  }
  node.window_pages.reset();
  node.is_counted_on = false;
}

void PrefixIndex::AddPrompt(Node* node, const TaggedDocuments& documents) {
  TaggedDocuments here = UpTo(documents, node->end);
  auto& prompts = node->prompts;
  if (std::find(prompts.begin(), prompts.end(), here) != prompts.end()) return;
  if (prompts.size() >= kMostPrompts) {
    documents_.Remove(prompts.back(), node, node->end);
    here.insert(here.end(), prompts.back().begin(), prompts.back().end());
    std::sort(here.begin(), here.end(), [](const TaggedDocument& a, const TaggedDocument& b) {
      return std::tie(a.tag, a.begin) < std::tie(b.tag, b.begin);
    });
    here.erase(std::unique(here.begin(), here.end()), here.end());
    prompts.pop_back();
  }
  prompts.push_back(std::move(here));
  documents_.Add(prompts.back(), node, node->end);
}

void PrefixIndex::DropPrompts(Node* node) {
  for (const TaggedDocuments& prompt : node->prompts) documents_.Remove(prompt, node, node->end);
  node->prompts.clear();
}

void PrefixIndex::Pin(const ContentHash& end) { ++nodes_.at(end)->pins; }

void PrefixIndex::Unpin(const ContentHash& end) {
  const auto found = nodes_.find(end);
  if (found != nodes_.end() && found->second->pins > 0) --found->second->pins;
}

void PrefixIndex::Forget(DocumentTag document) {
  const auto has_it = [document](const TaggedDocuments& prompt) {
    return std::any_of(prompt.begin(), prompt.end(),
                       [document](const TaggedDocument& each) { return each.tag == document; });
  };
  std::vector<Node*> nodes;
  for (const DocumentPages::NodeHandle handle : documents_.NodesOf(document)) {
    nodes.push_back(static_cast<Node*>(handle));
  }
  std::sort(nodes.begin(), nodes.end(),
            [](const Node* a, const Node* b) { return std::tie(a->end, a) < std::tie(b->end, b); });
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  for (Node* const node : nodes) {
    for (const TaggedDocuments& prompt : node->prompts) {
      if (has_it(prompt)) documents_.Remove(prompt, node, node->end);
    }
    std::erase_if(node->prompts, has_it);
  }
  // A node goes once nothing follows it, with one that is looked at later. So none is looked at
  // that went.
  for (Node* node : nodes) {
    while (node != nullptr && node->child == nullptr && node->prompts.empty() && node->pins == 0) {
      Node* const parent = node->parent;
      Remove(node);
      node = parent;
    }
  }
}

void PrefixIndex::ForgetRanks(std::span<const int32_t> ranks) {
  const auto is_lost = [&](PageId id) {
    return std::find(ranks.begin(), ranks.end(), id.rank) != ranks.end();
  };
  const auto lost_windows = [&](const Node& node) {
    if (!node.window_pages.has_value()) return false;
    for (const auto& group : *node.window_pages) {
      for (const PrefixPage& page : group) {
        if (is_lost(page.id)) return true;
      }
    }
    return false;
  };
  // A parent counts as used after its children, so backwards each node comes after its parent.
  std::unordered_set<const Node*> lost;
  for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) {
    Node& node = **use;
    if (lost.contains(node.parent) || std::any_of(node.full.begin(), node.full.end(), is_lost)) {
      lost.insert(&node);
    } else if (lost_windows(node)) {
      DropWindows(node);
    }
  }
  for (auto use = uses_.begin(); use != uses_.end();) {
    Node* const node = *use++;
    if (!lost.contains(node)) continue;
    ANNULUS_CHECK(node->pins == 0) << "a pinned page of a rank that lost it";
    EvictOne(node);
  }
}

int64_t PrefixIndex::bytes() const {
  // Nodes of a hash map and of a list, with the heap's own headers.
  constexpr int64_t kEntryBytes = 64 + 32 + 16;
  constexpr int64_t kScopeBytes = 48;
  const int64_t node = static_cast<int64_t>(sizeof(Node) + page_tokens_ * sizeof(int32_t));
  return static_cast<int64_t>(nodes_.size()) * (node + kEntryBytes) +
         kept_ * static_cast<int64_t>(sizeof(PrefixPage)) + std::ssize(firsts_) * kScopeBytes +
         documents_.bytes();
}

template <typename Use>
void PrefixIndex::ForEachPage(const Node& node, const Use& use) {
  for (const PageId id : node.full) use(id);
  if (!node.window_pages.has_value()) return;
  for (const auto& group : *node.window_pages) {
    for (const PrefixPage& page : group) use(page.id);
  }
}

void PrefixIndex::Keep(PageId id, const Digest& digest, std::optional<double> coverage) {
  book_.Keep(id, digest, coverage);
  ++kept_;
}

void PrefixIndex::Unkeep(const Node& node) {
  ForEachPage(node, [this](PageId id) {
    book_.Unkeep(id);
    --kept_;
  });
}

bool PrefixIndex::Unused(const Node& node) const {
  bool unused = true;
  ForEachPage(node, [&](PageId id) { unused = unused && book_.holders(id) == 0; });
  return unused;
}

bool PrefixIndex::IsOf(const Node& node, const TenantId& tenant) const {
  for (const Node* at = &node; at != nullptr; at = at->parent) {
    const TenantId* owner = nullptr;
    ForEachPage(*at, [&](PageId id) { owner = book_.page(id).tenant; });
    if (owner != nullptr) return *owner == tenant;
  }
  return true;  // it keeps no page of anybody
}

bool PrefixIndex::Evict(const std::function<bool()>& enough, const TenantId* only) {
  if (enough()) return true;
  for (const bool also_used : {false, true}) {
    for (auto next = uses_.begin(); next != uses_.end();) {
      Node* const node = *next++;
      if (node->child != nullptr || node->pins > 0 || (!also_used && !Unused(*node))) continue;
      if (only != nullptr && !IsOf(*node, *only)) continue;
      EvictOne(node);
      if (enough()) return true;
    }
  }
  // Checkpoints inside pinned prefixes: a pin needs the windows at its own end only.
  for (Node* const node : uses_) {
    if (node->child == nullptr || node->pins > 0) continue;
    if (!node->window_pages.has_value() || node->window_pages->empty()) continue;
    if (only != nullptr && !IsOf(*node, *only)) continue;
    DropWindows(*node);
    if (enough()) return true;
  }
  return false;
}

// What ended at the node ends at its parent now.
void PrefixIndex::EvictOne(Node* node) {
  if (node->parent != nullptr) {
    for (const TaggedDocuments& prompt : node->prompts) AddPrompt(node->parent, prompt);
  }
  evicted_.Add(node->scope, node->digest);
  Remove(node);
}

PrefixIndex::Node*& PrefixIndex::LatestBeside(const Node& node) {
  return node.parent != nullptr ? node.parent->child : firsts_.find(node.scope)->second;
}

void PrefixIndex::Link(Node* node, Node* parent) {
  node->parent = parent;
  Node*& latest = LatestBeside(*node);
  node->older = latest;
  if (node->older != nullptr) node->older->newer = node;
  latest = node;
}

void PrefixIndex::Unlink(const Node& node) {
  Node*& latest = LatestBeside(node);
  if (node.older != nullptr) node.older->newer = node.newer;
  (node.newer != nullptr ? node.newer->older : latest) = node.older;
  if (node.parent == nullptr && latest == nullptr) firsts_.erase(node.scope);
}

void PrefixIndex::Remove(Node* node) {
  DropPrompts(node);
  Unkeep(*node);
  Unlink(*node);
  uses_.erase(node->use);
  nodes_.erase(Digest(node->digest));
}

void PrefixIndex::Clear() {
  for (Node* node : uses_) {
    DropPrompts(node);
    Unkeep(*node);
  }
  uses_.clear();
  firsts_.clear();
  nodes_.clear();
}

}  // namespace annulus
