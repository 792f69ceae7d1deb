#ifndef ANNULUS_SERVER_DOCUMENTS_DOCUMENT_NOTES_H_
#define ANNULUS_SERVER_DOCUMENTS_DOCUMENT_NOTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/document.pb.h"

namespace annulus::server {

// The text of a document, in blocks: see TokenList.
class KeptText {
 public:
  static constexpr size_t kBlockBytes = 4096;
  // Heap bytes of a block besides its text.
  static constexpr size_t kBlockOverhead = 2 * sizeof(std::string) + 1;

  size_t size() const { return size_; }
  size_t memory_bytes() const { return memory_bytes_with(0); }
  // The same after `more` bytes are appended.
  size_t memory_bytes_with(size_t more) const {
    return (size_ + more + kBlockBytes - 1) / kBlockBytes * (kBlockBytes + kBlockOverhead);
  }

  void Append(absl::string_view bytes) {
    while (!bytes.empty()) {
      if (size_ % kBlockBytes == 0) blocks_.emplace_back().reserve(kBlockBytes);
      const absl::string_view part = bytes.substr(0, kBlockBytes - size_ % kBlockBytes);
      blocks_.back().append(part.data(), part.size());
      bytes.remove_prefix(part.size());
      size_ += part.size();
    }
  }

  // Bytes [begin, end), as far as there are so many.
  std::string Read(size_t begin, size_t end) const {
    end = std::min(end, size_);
    std::string text;
    for (size_t at = begin; at < end;) {
      const size_t offset = at % kBlockBytes;
      const size_t count = std::min(kBlockBytes - offset, end - at);
      text.append(blocks_[at / kBlockBytes], offset, count);
      at += count;
    }
    return text;
  }

 private:
  std::vector<std::string> blocks_;  // all but the last one are full
  size_t size_ = 0;
};

// How many characters of UTF-8 begin in these bytes.
inline int64_t CountCharacters(absl::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](const char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  });
}

struct Mark {
  int64_t byte = 0;  // where it stands in the text
  std::string label;
};
inline constexpr int kMostMarks = 16'384;
inline constexpr size_t kLongestLabel = 256;

// What an upload says of its document besides the text and its title: DocumentHeader.keep_text and
// marks. Never changes.
struct DocumentNotes {
  bool keeps_text = false;
  KeptText text;            // empty unless it is kept
  std::vector<Mark> marks;  // ascending

  bool empty() const { return !keeps_text && marks.empty(); }
  // Heap bytes, with `more` bytes of text.
  size_t memory_bytes_with(size_t more) const;
  size_t memory_bytes() const { return memory_bytes_with(0); }
  // Of the last mark at or before this byte; empty if there is none.
  absl::string_view LabelAt(int64_t byte) const;
};

// Takes both from a header. INVALID_ARGUMENT: too many marks, a label that is too long or no UTF-8,
// or marks out of order.
absl::StatusOr<DocumentNotes> ReadNotes(const v1::DocumentHeader& header);
// INVALID_ARGUMENT if a mark lies behind the end of a text of so many bytes.
absl::Status CheckMarks(const DocumentNotes& notes, size_t size_bytes);

// Everything but the text, for a document's file; empty if there is nothing. ParseNotes reads it
// back; DATA_LOSS if it is not what NotesBytes writes.
std::string NotesBytes(const DocumentNotes& notes);
absl::StatusOr<DocumentNotes> ParseNotes(absl::string_view bytes);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_DOCUMENT_NOTES_H_
