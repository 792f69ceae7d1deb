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
#include "engine/memory/page_book.h"
#include "engine/tiers/document_set.h"

namespace annulus {

// Everything that one page's bytes depend on, and what is known about them. Ranks and rings are not
// in it: a page has the same bytes wherever it lies (kernels/ops/shards.h).
//
// The chain of a text's pages: RootOf is the parent of the first page, ChainOf gives each page's
// own hash of its parent's and its tokens. So `chain` names model, policy, tenant and every token
// up to the page's end.
struct PageMark {
  ContentHash identity{};  // model, dtypes, kernels, layout of pages, virtual shards
  ContentHash policy{};    // attention policy and rotary frequencies
  ContentHash tenant{};
  ContentHash parent{};
  ContentHash chain{};
  int32_t group = 0;           // cache group
  int32_t first_position = 0;  // a multiple of tokens.size()
  std::vector<int32_t> tokens;
  std::optional<double> coverage;  // as PageBook::Keep takes it; absent: exactly

  // The page's documents and its tenant's limit. They do not identify the page.
  DocumentSet documents;                 // that it holds tokens of, or was computed behind
  SteadyTime asked = SteadyTime::max();  // when its request found its documents
  // Most bytes that its tenant may have in the store that it is put in.
  int64_t tenant_bytes = std::numeric_limits<int64_t>::max();
};

ContentHash HashOf(absl::string_view text);
ContentHash RootOf(const PageMark& mark);
ContentHash ChainOf(const ContentHash& parent, std::span<const int32_t> tokens);

// What finds a page in a tier.
struct PageKey {
  ContentHash chain{};
  int32_t group = 0;
  friend bool operator==(const PageKey&, const PageKey&) = default;
};

struct PageKeyHash {
  size_t operator()(const PageKey& key) const;
};

inline PageKey KeyOf(const PageMark& mark) { return {mark.chain, mark.group}; }

// XXH3, 128 bits: protects against disks that fail, not against people. Anybody who can write into
// the folder can forge pages, but only its owner can.
using Checksum = std::array<std::byte, 16>;

// The checksum of the parts as if they lay one behind the other.
Checksum ChecksumOf(std::span<const std::span<const std::byte>> parts);
Checksum ChecksumOf(std::span<const std::byte> bytes);

// A stored page: a header of this size, then the page's bytes, and nothing after them, in a file as
// in memory. Numbers are little-endian. The header holds everything of the mark, the payload's size
// and checksum, zeros, and in its last 16 bytes the checksum of all before: so no bit can change
// unnoticed.
inline constexpr size_t kEntryHeaderBytes = 4096;
inline constexpr uint32_t kEntryVersion = 1;
inline constexpr size_t kMostPageTokens = 256;

struct EntryHeader {
  PageMark mark;
  uint64_t payload_bytes = 0;
  Checksum payload{};
};

// `block`: kEntryHeaderBytes. mark.tokens: 1 to kMostPageTokens.
void WriteHeader(const EntryHeader& header, std::span<std::byte> block);

// DATA_LOSS with the reason where the block is not a whole header of this version.
absl::StatusOr<EntryHeader> ReadHeader(std::span<const std::byte> block);

// Whether a stored page is the expected one: everything but coverage and documents is equal, and
// the hashes are right for the mark's own fields.
bool SamePage(const PageMark& stored, const PageMark& expected);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_ENTRY_H_
