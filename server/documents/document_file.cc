#include "server/documents/document_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/disk/checksum.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"
#include "server/documents/document_name.h"

namespace annulus::server {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are stored as they lie");

constexpr std::array<char, 8> kMagic = {'A', 'N', 'N', 'L', 'D', 'O', 'C', '\n'};
constexpr uint64_t kMostTextBytes = uint64_t{1} << 40;
constexpr size_t kLongestTenant = 64;
constexpr size_t kDigestBytes = 32;

// The header's layout in the file. Tenant, name and title follow it.
struct Fixed {
  std::array<char, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t size_bytes;
  int64_t stored_at;
  std::array<char, kDigestBytes> sha256;
  uint32_t tenant_bytes;
  uint32_t name_bytes;
  uint32_t title_bytes;
  uint32_t notes_bytes;  // 0 in version 1
};
static_assert(sizeof(Fixed) == 32 + kDigestBytes + 16, "no padding: its bytes would be arbitrary");
static_assert(sizeof(Fixed) + kLongestTenant + kLongestDocumentName + kLongestTitle +
                  sizeof(Checksum) <=
              kFileHeaderBytes);

constexpr size_t kChecksumAt = kFileHeaderBytes - sizeof(Checksum);

absl::Status ImpossibleError() {
  return absl::DataLossError("the header says what no document can have");
}

}  // namespace

uint64_t NotesAt(uint64_t size_bytes) {
  return kFileHeaderBytes + size_bytes + FileBlocks(size_bytes) * sizeof(Checksum);
}

uint64_t FileBytes(uint64_t size_bytes, uint64_t notes_bytes) {
  return NotesAt(size_bytes) + (notes_bytes > 0 ? notes_bytes + sizeof(Checksum) : 0);
}

void WriteFileHeader(const FileFacts& facts, std::span<std::byte> block) {
  ANNULUS_CHECK(block.size() == kFileHeaderBytes) << block.size();
  const std::string digest = absl::HexStringToBytes(facts.sha256);
  Fixed fixed{};
  ANNULUS_CHECK(digest.size() == fixed.sha256.size()) << digest.size();
  fixed.magic = kMagic;
  fixed.version = facts.notes_bytes > 0 ? kFileVersionWithNotes : kFileVersion;
  fixed.notes_bytes = static_cast<uint32_t>(facts.notes_bytes);
  fixed.header_bytes = kFileHeaderBytes;
  fixed.size_bytes = facts.size_bytes;
  fixed.stored_at = facts.stored_at;
  std::copy(digest.begin(), digest.end(), fixed.sha256.begin());
  fixed.tenant_bytes = static_cast<uint32_t>(facts.tenant.name().size());
  fixed.name_bytes = static_cast<uint32_t>(facts.name.size());
  fixed.title_bytes = static_cast<uint32_t>(facts.title.size());
  const std::string texts = absl::StrCat(facts.tenant.name(), facts.name, facts.title);
  ANNULUS_CHECK(sizeof(fixed) + texts.size() <= kChecksumAt) << texts.size();
  std::fill(block.begin(), block.end(), std::byte{0});
  std::memcpy(block.data(), &fixed, sizeof(fixed));
  std::memcpy(block.data() + sizeof(fixed), texts.data(), texts.size());
  const Checksum sum = ChecksumOf(block.first(kChecksumAt));
  std::copy(sum.begin(), sum.end(), block.begin() + kChecksumAt);
}

absl::StatusOr<FileFacts> ReadFileHeader(std::span<const std::byte> block) {
  if (block.size() != kFileHeaderBytes) return absl::DataLossError("the header is cut off");
  Fixed fixed;
  std::memcpy(&fixed, block.data(), sizeof(fixed));
  if (fixed.magic != kMagic) return absl::DataLossError("it is no document's file");
  const bool known = fixed.version == kFileVersion || fixed.version == kFileVersionWithNotes;
  if (!known || fixed.header_bytes != kFileHeaderBytes) {
    return absl::DataLossError(absl::StrCat("it has version ", fixed.version,
                                            "; this program reads ", kFileVersion, " and ",
                                            kFileVersionWithNotes));
  }
  const Checksum sum = ChecksumOf(block.first(kChecksumAt));
  if (!std::equal(sum.begin(), sum.end(), block.begin() + kChecksumAt)) {
    return absl::DataLossError("the header's checksum is wrong");
  }
  if (fixed.tenant_bytes > kLongestTenant || fixed.name_bytes > kLongestDocumentName ||
      fixed.title_bytes > kLongestTitle || fixed.size_bytes < 1 ||
      fixed.size_bytes > kMostTextBytes || fixed.notes_bytes > kMostNotesBytes ||
      (fixed.notes_bytes > 0) != (fixed.version == kFileVersionWithNotes)) {
    return ImpossibleError();
  }
  const char* at = reinterpret_cast<const char*>(block.data()) + sizeof(fixed);
  const auto take = [&at](size_t bytes) {
    std::string text(at, bytes);
    at += bytes;
    return text;
  };
  const absl::StatusOr<TenantId> tenant = TenantId::FromName(take(fixed.tenant_bytes));
  FileFacts facts;
  facts.name = take(fixed.name_bytes);
  facts.title = take(fixed.title_bytes);
  if (!tenant.ok() || !CheckDocumentName("", facts.name).ok() ||
      FirstInvalidUtf8(facts.title).has_value()) {
    return ImpossibleError();
  }
  facts.tenant = *tenant;
  facts.size_bytes = fixed.size_bytes;
  facts.sha256 =
      absl::BytesToHexString(absl::string_view(fixed.sha256.data(), fixed.sha256.size()));
  facts.stored_at = fixed.stored_at;
  facts.notes_bytes = fixed.notes_bytes;
  return facts;
}

}  // namespace annulus::server
