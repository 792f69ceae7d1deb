#ifndef ANNULUS_SERVER_DOCUMENTS_DOCUMENT_FILE_H_
#define ANNULUS_SERVER_DOCUMENTS_DOCUMENT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus::server {

// The form of a document's file: a header of kFileHeaderBytes, the text exactly as it was uploaded,
// and the checksums of the text's blocks (kFileBlockBytes each, the last one what is left). If the
// document has notes, they and their checksum follow. So `tail -c +4097 FILE | head -c SIZE`
// rescues a text. Numbers are little-endian. The last 16 bytes of the header are the checksum of
// the header's other bytes; zeros fill it.
inline constexpr size_t kFileHeaderBytes = 4096;
inline constexpr size_t kFileBlockBytes = size_t{64} << 10;
// Of a file without notes, and with.
inline constexpr uint32_t kFileVersion = 1;
inline constexpr uint32_t kFileVersionWithNotes = 2;
inline constexpr size_t kMostNotesBytes = size_t{8} << 20;

struct FileFacts {
  TenantId tenant;
  std::string name;
  std::string title;
  uint64_t size_bytes = 0;   // of the text
  std::string sha256;        // of the text, 64 lower-case hexadecimal digits
  int64_t stored_at = 0;     // seconds since 1970
  uint64_t notes_bytes = 0;  // at most kMostNotesBytes
};

inline uint64_t FileBlocks(uint64_t size_bytes) {
  return (size_bytes + kFileBlockBytes - 1) / kFileBlockBytes;
}
// The length of the whole file, and where its notes begin.
uint64_t FileBytes(uint64_t size_bytes, uint64_t notes_bytes = 0);
uint64_t NotesAt(uint64_t size_bytes);

// `block` has kFileHeaderBytes. Tenant, name and title have at most 64, 128 and 1024 bytes.
void WriteFileHeader(const FileFacts& facts, std::span<std::byte> block);

// DATA_LOSS, with the reason, if the block is no header of this version, or says what no upload can
// have.
absl::StatusOr<FileFacts> ReadFileHeader(std::span<const std::byte> block);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_DOCUMENT_FILE_H_
