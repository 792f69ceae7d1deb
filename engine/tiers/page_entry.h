#ifndef ANNULUS_ENGINE_TIERS_PAGE_ENTRY_H_
#define ANNULUS_ENGINE_TIERS_PAGE_ENTRY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/steady_time.h"
#include "engine/disk/checksum.h"
#include "engine/memory/page_book.h"
#include "engine/tiers/document_set.h"

namespace annulus {

// Identifies a page by everything that its bytes depend on. Ranks and rings are not part of it: a
// page has the same bytes wherever it lies (kernels/ops/shards.h).
//
// The pages of a text form a chain of hashes. RootOf is the parent of the first page; ChainOf makes
// a page's hash from its parent's and its tokens. So `chain` depends on model, policy, tenant and
// every token up to the page's end.
struct PageMark {
  ContentHash identity{};  // model, dtypes, kernels, layout of pages, virtual shards
  ContentHash policy{};    // attention policy and rotary frequencies
  ContentHash tenant{};
  ContentHash parent{};
  ContentHash chain{};
  int32_t group = 0;           // cache group
  int32_t first_position = 0;  // a multiple of tokens.size()
  std::vector<int32_t> tokens;
  std::optional<double> coverage;  // see PageBook::Keep; absent: exact

  // The rest does not identify the page.
  DocumentSet documents;                 // documents that it holds tokens of or comes after
  SteadyTime asked = SteadyTime::max();  // when its request found its documents
  // The most bytes that its tenant may have in the store.
  int64_t tenant_bytes = std::numeric_limits<int64_t>::max();
};

ContentHash HashOf(absl::string_view text);
ContentHash RootOf(const PageMark& mark);
ContentHash ChainOf(const ContentHash& parent, std::span<const int32_t> tokens);

// The key of a page in a store.
struct PageKey {
  static constexpr int32_t kAnyRank = -1;

  ContentHash chain{};
  int32_t group = 0;
  // In a store that keeps pages beside ranks (PageStore::beside_ranks): the rank; kAnyRank: any,
  // for calls that say so. In other stores always kAnyRank.
  int32_t rank = kAnyRank;
  friend bool operator==(const PageKey&, const PageKey&) = default;
};

struct PageKeyHash {
  size_t operator()(const PageKey& key) const;
};

inline PageKey KeyOf(const PageMark& mark) { return {mark.chain, mark.group}; }

// A stored page, in a file or in memory, is a header of this size followed by the page's bytes.
// Numbers are little-endian. The header has the whole mark, the payload's size and checksum, zeros,
// and in its last 16 bytes the checksum of all bytes before, so a change of any bit is detected.
inline constexpr size_t kEntryHeaderBytes = 4096;
inline constexpr uint32_t kEntryVersion = 1;
inline constexpr size_t kMostPageTokens = 256;

struct EntryHeader {
  PageMark mark;
  uint64_t payload_bytes = 0;
  Checksum payload{};
};

// `block` has kEntryHeaderBytes. mark.tokens has 1 to kMostPageTokens tokens.
void WriteHeader(const EntryHeader& header, std::span<std::byte> block);

// DATA_LOSS, with the reason, if the block is not a complete header of this version.
absl::StatusOr<EntryHeader> ReadHeader(std::span<const std::byte> block);

// Whether a stored page is the expected one: all identifying fields are equal, and the hashes match
// the stored fields.
bool SamePage(const PageMark& stored, const PageMark& expected);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_ENTRY_H_
