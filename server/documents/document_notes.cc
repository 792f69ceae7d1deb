#include "server/documents/document_notes.h"

#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {

size_t DocumentNotes::memory_bytes_with(size_t more) const {
  size_t bytes = marks.capacity() * sizeof(Mark);
  for (const Mark& mark : marks) bytes += mark.label.capacity();
  return bytes + (keeps_text ? text.memory_bytes_with(more) : 0);
}

absl::string_view DocumentNotes::LabelAt(int64_t byte) const {
  const auto after = std::upper_bound(marks.begin(), marks.end(), byte,
                                      [](int64_t at, const Mark& mark) { return at < mark.byte; });
  return after == marks.begin() ? absl::string_view() : std::prev(after)->label;
}

absl::StatusOr<DocumentNotes> ReadNotes(const v1::DocumentHeader& header) {
  DocumentNotes notes;
  notes.keeps_text = header.keep_text();
  if (header.marks_size() > kMostMarks) {
    return FieldError("header.marks",
                      absl::StrCat(header.marks_size(), " marks; at most ", kMostMarks,
                                   " are allowed: mark larger parts of the document"));
  }
  notes.marks.reserve(static_cast<size_t>(header.marks_size()));
  int64_t last = 0;
  for (int i = 0; i < header.marks_size(); ++i) {
    const v1::DocumentMark& mark = header.marks(i);
    const std::string field = absl::StrCat("header.marks[", i, "]");
    if (mark.byte() < last) {
      return FieldError(absl::StrCat(field, ".byte"),
                        absl::StrCat(mark.byte(), " is not allowed: at least ", last,
                                     i == 0 ? "" : ", where the mark before it stands"));
    }
    last = mark.byte();
    if (mark.label().empty() || mark.label().size() > kLongestLabel) {
      return FieldError(
          absl::StrCat(field, ".label"),
          absl::StrCat("has ", mark.label().size(), " bytes; allowed are 1 to ", kLongestLabel));
    }
    if (const std::optional<size_t> bad = FirstInvalidUtf8(mark.label())) {
      return FieldError(absl::StrCat(field, ".label"), absl::StrCat("is not UTF-8 at byte ", *bad));
    }
    notes.marks.push_back({mark.byte(), mark.label()});
  }
  return notes;
}

absl::Status CheckMarks(const DocumentNotes& notes, size_t size_bytes) {
  if (notes.marks.empty() || notes.marks.back().byte <= static_cast<int64_t>(size_bytes)) {
    return absl::OkStatus();
  }
  return FieldError(
      "header.marks",
      absl::StrCat("the last mark stands at byte ", notes.marks.back().byte,
                   ", behind the end of the document, which has ", size_bytes, " bytes"));
}

std::string NotesBytes(const DocumentNotes& notes) {
  v1::DocumentHeader header;
  header.set_keep_text(notes.keeps_text);
  for (const Mark& mark : notes.marks) {
    v1::DocumentMark& added = *header.add_marks();
    added.set_byte(mark.byte);
    added.set_label(mark.label);
  }
  return header.SerializeAsString();
}

absl::StatusOr<DocumentNotes> ParseNotes(absl::string_view bytes) {
  v1::DocumentHeader header;
  absl::StatusOr<DocumentNotes> notes;
  if (header.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    notes = ReadNotes(header);
    if (notes.ok()) return notes;
  }
  return absl::DataLossError("the file's marks are not what an upload can have");
}

}  // namespace annulus::server
