#include "client/read/web/html_tree.h"

#include <setjmp.h>

#include <cstddef>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;
constexpr int kAllocationsPerLook = 64;  // allocations between two looks at the clock

}  // namespace

struct HtmlTree::Arena {
  ~Arena() {
    for (void* block : blocks) std::free(block);
  }

  // At a limit, leaves the parser by longjmp, because Gumbo has no way to stop it.
  static void* Allocate(void* self, size_t bytes) {
    auto& arena = *static_cast<Arena*>(self);
    constexpr size_t kAlignment = alignof(std::max_align_t);
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (++arena.allocations % kAllocationsPerLook == 0 && arena.budget->TimeIsUp()) {
      arena.time_is_up = true;
      longjmp(arena.out, 1);
    }
    if (bytes > arena.left) arena.AddBlock(bytes);
    void* const memory = arena.next;
    arena.next += bytes;
    arena.left -= bytes;
    return memory;
  }
  static void Free(void*, void*) {}

  void AddBlock(size_t bytes) {
    const size_t size = bytes > kBlockBytes ? bytes : kBlockBytes;
    taken += static_cast<int64_t>(size);
    void* const block = taken > budget->limits().html_memory ? nullptr : std::malloc(size);
    if (block == nullptr) longjmp(out, 1);
    blocks.push_back(block);
    next = static_cast<char*>(block);
    left = size;
  }

  // Returns null at a limit. Must not have locals with destructors: longjmp would skip them.
  const GumboOutput* Parse(absl::string_view text) {
    if (setjmp(out) != 0) return nullptr;
    GumboOptions options = kGumboDefaultOptions;
    options.allocator = &Allocate;
    options.deallocator = &Free;
    options.userdata = this;
    options.max_errors = 0;
    return gumbo_parse_with_options(&options, text.data(), text.size());
  }

  const ReadBudget* budget = nullptr;
  jmp_buf out;
  std::vector<void*> blocks;
  char* next = nullptr;
  size_t left = 0;
  int64_t taken = 0;
  int allocations = 0;
  bool time_is_up = false;
};

HtmlTree::HtmlTree(std::unique_ptr<Arena> arena) : arena_(std::move(arena)) {}
HtmlTree::~HtmlTree() = default;

absl::StatusOr<std::unique_ptr<HtmlTree>> HtmlTree::Parse(absl::string_view what,
                                                          absl::string_view text,
                                                          const ReadBudget& budget) {
  auto arena = std::make_unique<Arena>();
  arena->budget = &budget;
  // Reserve the list of blocks, so that push_back in AddBlock cannot fail and leak a block.
  arena->blocks.reserve(static_cast<size_t>(budget.limits().html_memory) / kBlockBytes + 2);
  std::unique_ptr<HtmlTree> tree(new HtmlTree(std::move(arena)));
  tree->output_ = tree->arena_->Parse(text);
  if (tree->output_ != nullptr) return tree;
  if (tree->arena_->time_is_up) return budget.CheckTime(what);
  return absl::ResourceExhaustedError(
      absl::StrCat(what, " takes more than ", budget.limits().html_memory >> 20,
                   " MiB to read as HTML; convert it to plain text first"));
}

}  // namespace annulus::client
