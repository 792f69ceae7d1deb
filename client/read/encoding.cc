#include "client/read/encoding.h"

#include <iconv.h>
#include <uchardet.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

// How much text uchardet gets; more would not change its guess.
constexpr size_t kGuessBytes = size_t{1} << 20;

struct ByteOrderMark {
  absl::string_view bytes;
  const char* encoding;
};

// UTF-32LE comes before UTF-16LE, because its mark begins with the mark of UTF-16LE.
const ByteOrderMark kMarks[] = {{absl::string_view("\xFF\xFE\0\0", 4), "UTF-32LE"},
                                {absl::string_view("\0\0\xFE\xFF", 4), "UTF-32BE"},
                                {"\xFF\xFE", "UTF-16LE"},
                                {"\xFE\xFF", "UTF-16BE"}};

// Converts to UTF-8. nullopt if iconv does not know the encoding, or if the bytes are not valid in
// it.
std::optional<std::string> Converted(absl::string_view bytes, const std::string& encoding) {
  const iconv_t converter = iconv_open("UTF-8", encoding.c_str());
  if (converter == reinterpret_cast<iconv_t>(-1)) return std::nullopt;
  const std::unique_ptr<void, int (*)(iconv_t)> closer(converter, &iconv_close);
  std::string text;
  char buffer[16384];
  char* from = const_cast<char*>(bytes.data());
  size_t from_left = bytes.size();
  bool flushed = false;
  while (!flushed) {
    char* to = buffer;
    size_t to_left = sizeof(buffer);
    // At the end, what an encoding with states has kept back of its last character.
    flushed = from_left == 0;
    const size_t result =
        iconv(converter, flushed ? nullptr : &from, flushed ? nullptr : &from_left, &to, &to_left);
    const int error = errno;
    text.append(buffer, sizeof(buffer) - to_left);
    if (result == static_cast<size_t>(-1) && error != E2BIG) return std::nullopt;
  }
  return text;
}

std::string Guess(absl::string_view bytes) {
  const std::unique_ptr<uchardet, void (*)(uchardet_t)> detector(uchardet_new(), &uchardet_delete);
  uchardet_handle_data(detector.get(), bytes.data(), std::min(bytes.size(), kGuessBytes));
  uchardet_data_end(detector.get());
  const std::string encoding = uchardet_get_charset(detector.get());
  // Text detected as Latin-1 is nearly always Windows-1252, which has quotes and dashes where
  // Latin-1 has control characters.
  return encoding == "ISO-8859-1" ? "WINDOWS-1252" : encoding;
}

}  // namespace

absl::StatusOr<Utf8Text> ToUtf8(absl::string_view what, std::string bytes,
                                const std::string& declared) {
  for (const ByteOrderMark& mark : kMarks) {
    absl::string_view rest = bytes;
    if (!absl::ConsumePrefix(&rest, mark.bytes)) continue;
    std::optional<std::string> text = Converted(rest, mark.encoding);
    if (text.has_value()) return Utf8Text{*std::move(text), mark.encoding};
    return absl::InvalidArgumentError(
        absl::StrCat(what, " begins like ", mark.encoding,
                     " text, but the rest is not; it may be cut off or broken"));
  }
  if (absl::StartsWith(bytes, "\xEF\xBB\xBF")) bytes.erase(0, 3);
  const std::optional<size_t> bad = FindInvalidUtf8(bytes);
  if (!bad.has_value() && !absl::StrContains(bytes, '\0')) return Utf8Text{std::move(bytes), ""};
  if (absl::StrContains(bytes, '\0')) {
    return absl::InvalidArgumentError(absl::StrCat(
        what,
        " is not text, nor of a kind that can be read: txt, md, html, pdf, docx, odt, epub, csv, "
        "json, source code, and gz and zip files of these"));
  }
  for (const std::string& encoding : {declared, Guess(bytes)}) {
    if (encoding.empty()) continue;
    std::optional<std::string> text = Converted(bytes, encoding);
    if (text.has_value()) return Utf8Text{*std::move(text), encoding};
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not UTF-8 text (byte ", *bad,
                   ") and its encoding cannot be told; convert it first, for example by iconv"));
}

}  // namespace annulus::client
