#include "client/cli/ask/text_parts.h"

#include <algorithm>

namespace annulus::client {
namespace {

// Size in bytes of the first part of `text`, which must be longer than `most_bytes`.
size_t FirstPart(absl::string_view text, size_t most_bytes) {
  const absl::string_view window = text.substr(0, most_bytes);
  for (const absl::string_view mark : {"\n\n", "\n", " "}) {
    const size_t at = window.rfind(mark);
    if (at != absl::string_view::npos && at + mark.size() > most_bytes / 2) {
      return at + mark.size();
    }
  }
  size_t end = most_bytes;
  while (end > 1 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return end;
}

}  // namespace

std::vector<absl::string_view> CutText(absl::string_view text, size_t most_bytes) {
  most_bytes = std::max<size_t>(most_bytes, 4);
  std::vector<absl::string_view> parts;
  while (text.size() > most_bytes) {
    const size_t size = FirstPart(text, most_bytes);
    parts.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  if (!text.empty()) parts.push_back(text);
  return parts;
}

}  // namespace annulus::client
