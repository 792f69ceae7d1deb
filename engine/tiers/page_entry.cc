#include "engine/tiers/page_entry.h"

#include <openssl/sha.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored as they lie");

constexpr std::array<char, 8> kMagic = {'A', 'N', 'N', 'L', 'S', 'K', 'V', '\n'};

// The header's layout in the file, without the tokens.
struct Fixed {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t payload_bytes;
  int32_t group;
  int32_t first_position;
  uint32_t page_tokens;
  uint32_t exact;  // 1: exact, and coverage is unused
  double coverage;
  ContentHash identity;
  ContentHash policy;
  ContentHash tenant;
  ContentHash parent;
  ContentHash chain;
  Checksum payload;
};
static_assert(sizeof(Fixed) == 48 + 5 * 32 + 16, "no padding: its bytes would be arbitrary");
static_assert(sizeof(Fixed) + kMostPageTokens * sizeof(int32_t) + sizeof(Checksum) <=
              kEntryHeaderBytes);

constexpr size_t kChecksumAt = kEntryHeaderBytes - sizeof(Checksum);

}  // namespace

size_t PageKeyHash::operator()(const PageKey& key) const {
  size_t value;
  std::memcpy(&value, key.chain.data(), sizeof(value));
  return value ^ static_cast<size_t>(key.group);
}

ContentHash HashOf(absl::string_view text) {
  ContentHash hash;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash.data());
  return hash;
}

ContentHash RootOf(const PageMark& mark) {
  std::array<unsigned char, 3 * sizeof(ContentHash)> message;
  auto* end = message.data();
  for (const ContentHash* hash : {&mark.identity, &mark.policy, &mark.tenant}) {
    end = std::copy(hash->begin(), hash->end(), end);
  }
  ContentHash root;
  SHA256(message.data(), message.size(), root.data());
  return root;
}

ContentHash ChainOf(const ContentHash& parent, std::span<const int32_t> tokens) {
  ANNULUS_CHECK(tokens.size() <= kMostPageTokens) << tokens.size();
  std::array<unsigned char, sizeof(ContentHash) + kMostPageTokens * sizeof(int32_t)> message;
  std::copy(parent.begin(), parent.end(), message.begin());
  std::memcpy(message.data() + parent.size(), tokens.data(), tokens.size_bytes());
  ContentHash chain;
  SHA256(message.data(), parent.size() + tokens.size_bytes(), chain.data());
  return chain;
}

void WriteHeader(const EntryHeader& header, std::span<std::byte> block) {
  const PageMark& mark = header.mark;
  ANNULUS_CHECK(block.size() == kEntryHeaderBytes) << block.size();
  ANNULUS_CHECK(!mark.tokens.empty() && mark.tokens.size() <= kMostPageTokens)
      << mark.tokens.size();
  Fixed fixed{};
  fixed.magic = kMagic;
  fixed.version = kEntryVersion;
  fixed.header_bytes = kEntryHeaderBytes;
  fixed.payload_bytes = header.payload_bytes;
  fixed.group = mark.group;
  fixed.first_position = mark.first_position;
  fixed.page_tokens = static_cast<uint32_t>(mark.tokens.size());
  fixed.exact = mark.coverage.has_value() ? 0 : 1;
  fixed.coverage = mark.coverage.value_or(0);
  fixed.identity = mark.identity;
  fixed.policy = mark.policy;
  fixed.tenant = mark.tenant;
  fixed.parent = mark.parent;
  fixed.chain = mark.chain;
  fixed.payload = header.payload;
  std::fill(block.begin(), block.end(), std::byte{0});
  std::memcpy(block.data(), &fixed, sizeof(fixed));
  std::memcpy(block.data() + sizeof(fixed), mark.tokens.data(),
              mark.tokens.size() * sizeof(int32_t));
  const Checksum sum = ChecksumOf(block.first(kChecksumAt));
  std::copy(sum.begin(), sum.end(), block.begin() + kChecksumAt);
}

absl::StatusOr<EntryHeader> ReadHeader(std::span<const std::byte> block) {
  if (block.size() != kEntryHeaderBytes) return absl::DataLossError("the header is cut off");
  Fixed fixed;
  std::memcpy(&fixed, block.data(), sizeof(fixed));
  if (fixed.magic != kMagic) return absl::DataLossError("it is not a page of keys and values");
  if (fixed.version != kEntryVersion || fixed.header_bytes != kEntryHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat("it has version ", fixed.version, "; this program reads ", kEntryVersion));
  }
  const Checksum sum = ChecksumOf(block.first(kChecksumAt));
  if (!std::equal(sum.begin(), sum.end(), block.begin() + kChecksumAt)) {
    return absl::DataLossError("the header's checksum is wrong");
  }
  if (fixed.page_tokens < 1 || fixed.page_tokens > kMostPageTokens || fixed.exact > 1 ||
      !(fixed.coverage >= 0 && fixed.coverage <= 1)) {
    return absl::DataLossError("the header has an invalid number");
  }
  EntryHeader header;
  header.payload_bytes = fixed.payload_bytes;
  header.payload = fixed.payload;
  PageMark& mark = header.mark;
  mark.identity = fixed.identity;
  mark.policy = fixed.policy;
  mark.tenant = fixed.tenant;
  mark.parent = fixed.parent;
  mark.chain = fixed.chain;
  mark.group = fixed.group;
  mark.first_position = fixed.first_position;
  mark.tokens.resize(fixed.page_tokens);
  std::memcpy(mark.tokens.data(), block.data() + sizeof(fixed),
              mark.tokens.size() * sizeof(int32_t));
  if (fixed.exact == 0) mark.coverage = fixed.coverage;
  return header;
}

bool SamePage(const PageMark& stored, const PageMark& expected) {
  const bool equal = stored.identity == expected.identity && stored.policy == expected.policy &&
                     stored.tenant == expected.tenant && stored.parent == expected.parent &&
                     stored.chain == expected.chain && stored.group == expected.group &&
                     stored.first_position == expected.first_position &&
                     stored.tokens == expected.tokens;
  if (!equal || stored.chain != ChainOf(stored.parent, stored.tokens)) return false;
  return stored.first_position != 0 || stored.parent == RootOf(stored);
}

}  // namespace annulus
