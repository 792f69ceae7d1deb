#include "client/read/encoding.h"

#include <iconv.h>
#include <uchardet.h>
#include <utf8proc.h>

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

constexpr char kReplacement[] = "\xEF\xBF\xBD";

struct ByteOrderMark {
  absl::string_view bytes;
  const char* encoding;
};

// UTF-32LE comes before UTF-16LE, because its mark begins with the mark of UTF-16LE.
const ByteOrderMark kMarks[] = {{absl::string_view("\xFF\xFE\0\0", 4), "UTF-32LE"},
                                {absl::string_view("\0\0\xFE\xFF", 4), "UTF-32BE"},
                                {"\xFF\xFE", "UTF-16LE"},
                                {"\xFE\xFF", "UTF-16BE"}};

// Escapes that switch to a character set of ISO-2022; the text around them is ASCII.
const std::pair<absl::string_view, const char*> kEscapes[] = {
    {"\x1B$B", "ISO-2022-JP"},   {"\x1B$@", "ISO-2022-JP"},  {"\x1B(J", "ISO-2022-JP"},
    {"\x1B(I", "ISO-2022-JP-3"}, {"\x1B$)C", "ISO-2022-KR"}, {"\x1B$)A", "ISO-2022-CN"},
    {"\x1B$)G", "ISO-2022-CN"}};

// The Windows code pages that have letters where the ISO encodings have control characters.
const std::pair<absl::string_view, const char*> kWindowsPages[] = {
    {"ISO-8859-1", "WINDOWS-1252"},  {"ISO-8859-15", "WINDOWS-1252"},
    {"ISO-8859-2", "WINDOWS-1250"},  {"ISO-8859-16", "WINDOWS-1250"},
    {"ISO-8859-5", "WINDOWS-1251"},  {"ISO-8859-7", "WINDOWS-1253"},
    {"ISO-8859-9", "WINDOWS-1254"},  {"ISO-8859-3", "WINDOWS-1254"},
    {"ISO-8859-8", "WINDOWS-1255"},  {"ISO-8859-6", "WINDOWS-1256"},
    {"ISO-8859-4", "WINDOWS-1257"},  {"ISO-8859-10", "WINDOWS-1257"},
    {"ISO-8859-13", "WINDOWS-1257"}, {"TIS-620", "WINDOWS-874"},
    {"ISO-8859-11", "WINDOWS-874"}};

size_t UnitBytes(absl::string_view encoding) {
  return absl::StartsWith(encoding, "UTF-16") ? 2 : absl::StartsWith(encoding, "UTF-32") ? 4 : 1;
}

// Converts to UTF-8. Replaces up to `most_bad` bytes that are not valid. nullopt if iconv does not
// know the encoding, or if more are bad.
std::optional<Utf8Text> Converted(absl::string_view bytes, const std::string& encoding,
                                  int64_t most_bad) {
  const iconv_t converter = iconv_open("UTF-8", encoding.c_str());
  if (converter == reinterpret_cast<iconv_t>(-1)) return std::nullopt;
  const std::unique_ptr<void, int (*)(iconv_t)> closer(converter, &iconv_close);
  Utf8Text result{.converted_from = encoding};
  char buffer[16384];
  char* from = const_cast<char*>(bytes.data());
  size_t from_left = bytes.size();
  bool flushed = false;
  while (!flushed) {
    char* to = buffer;
    size_t to_left = sizeof(buffer);
    // At the end, what an encoding with states has kept back of its last character.
    flushed = from_left == 0;
    const size_t done =
        iconv(converter, flushed ? nullptr : &from, flushed ? nullptr : &from_left, &to, &to_left);
    const int error = errno;
    result.text.append(buffer, sizeof(buffer) - to_left);
    if (done != static_cast<size_t>(-1) || error == E2BIG) continue;
    if (flushed || ++result.replaced > most_bad) return std::nullopt;
    if (result.replaced == 1) result.first_replaced = bytes.size() - from_left;
    result.text += kReplacement;
    const size_t skipped = std::min(UnitBytes(encoding), from_left);
    from += skipped;
    from_left -= skipped;
  }
  return result;
}

// Of a text whose encoding is stated, this many bytes may be bad.
int64_t MostBad(absl::string_view bytes) { return static_cast<int64_t>(bytes.size()) / 100 + 1; }

// The lines with non-ASCII bytes: the guess uses only these.
std::string TellingLines(absl::string_view bytes) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  std::string lines;
  while (!bytes.empty() && lines.size() < kMostBytes) {
    const auto high =
        std::find_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0x80) != 0; });
    if (high == bytes.end()) break;
    const auto at = static_cast<size_t>(high - bytes.begin());
    constexpr size_t kAround = 256;  // of a file that is one long line
    size_t begin = at == 0 ? 0 : bytes.rfind('\n', at - 1) + 1;
    begin = std::max(begin, at - std::min(at, kAround));
    size_t end = std::min(bytes.find('\n', at), bytes.size());
    end = std::min(end, at + kAround);
    absl::StrAppend(&lines, bytes.substr(begin, end - begin), "\n");
    bytes.remove_prefix(end);
  }
  return lines;
}

std::string Guess(absl::string_view lines) {
  const std::unique_ptr<uchardet, void (*)(uchardet_t)> detector(uchardet_new(), &uchardet_delete);
  uchardet_handle_data(detector.get(), lines.data(), lines.size());
  uchardet_data_end(detector.get());
  return uchardet_get_charset(detector.get());
}

// Whether all characters have a meaning in Unicode, which random bytes have not for long.
bool IsAssigned(absl::string_view text) {
  while (!text.empty()) {
    utf8proc_int32_t code = 0;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()), &code);
    if (bytes <= 0) return false;
    const utf8proc_category_t category = utf8proc_category(code);
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CO) return false;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return true;
}

// UTF-16 without a mark: zero bytes lie at odd places alone (LE) or at even ones (BE), and what
// comes out is text.
std::optional<Utf8Text> Utf16WithoutMark(absl::string_view bytes) {
  constexpr size_t kLeastBytes = 8;
  if (bytes.size() < kLeastBytes) return std::nullopt;
  int64_t zeros[2] = {0, 0};
  for (size_t i = 0; i < bytes.size(); ++i) zeros[i % 2] += bytes[i] == '\0' ? 1 : 0;
  const bool little = zeros[1] > zeros[0];
  // Text in non-Latin scripts has zero bytes only in blanks and line ends, that of Chinese and
  // Japanese in line ends alone.
  const int64_t many = zeros[little ? 1 : 0], few = zeros[little ? 0 : 1];
  if (many * 400 < static_cast<int64_t>(bytes.size()) / 2 || few * 20 > many) return std::nullopt;
  std::optional<Utf8Text> text = Converted(bytes, little ? "UTF-16LE" : "UTF-16BE", 1);
  if (!text.has_value() || CountControls(text->text) > 0 || !IsAssigned(text->text)) {
    return std::nullopt;
  }
  text->guessed = true;
  return text;
}

constexpr char kHzBegin[] = "~{", kHzEnd[] = "~}";

// HZ (RFC 1843), which writes Chinese in ASCII: between "~{" and "~}", on one line, two bytes stand
// for a character. nullopt if anything that looks so is none.
std::optional<Utf8Text> FromHz(absl::string_view bytes) {
  constexpr char kHighBit = '\x80';
  std::string as_euc;
  bool any = false;
  while (!bytes.empty()) {
    if (absl::ConsumePrefix(&bytes, "~~")) {
      as_euc += '~';
    } else if (absl::ConsumePrefix(&bytes, "~\n")) {
      continue;
    } else if (absl::ConsumePrefix(&bytes, kHzBegin)) {
      const absl::string_view coded = bytes.substr(0, bytes.find(kHzEnd));
      const bool is_text =
          std::all_of(coded.begin(), coded.end(), [](char c) { return c > ' ' && c <= '~'; });
      if (coded.size() == bytes.size() || coded.size() % 2 != 0 || !is_text) return std::nullopt;
      for (const char c : coded) as_euc += static_cast<char>(c | kHighBit);
      any = any || !coded.empty();
      bytes.remove_prefix(coded.size() + 2);
    } else {
      as_euc += bytes.front();
      bytes.remove_prefix(1);
    }
  }
  std::optional<Utf8Text> text;
  if (any) text = Converted(as_euc, "GB2312", 0);
  if (text.has_value()) {
    text->converted_from = "HZ";
    text->guessed = true;
  }
  return text;
}

// UTF-8 with few bad bytes among many good characters.
std::optional<Utf8Text> NearlyUtf8(absl::string_view bytes, bool declared) {
  Utf8Text result;
  int64_t good = 0;
  size_t at = 0;
  while (at < bytes.size()) {
    const std::optional<size_t> bad = FindInvalidUtf8(bytes.substr(at));
    const absl::string_view valid = bytes.substr(at, bad.value_or(bytes.size()));
    good += std::count_if(valid.begin(), valid.end(), [](char c) { return (c & 0xC0) == 0xC0; });
    absl::StrAppend(&result.text, valid);
    at += valid.size();
    if (!bad.has_value()) break;
    if (++result.replaced > MostBad(bytes)) return std::nullopt;
    if (result.replaced == 1) result.first_replaced = at;
    result.text += kReplacement;
    // Its continuation bytes are part of the same damage.
    ++at;
    while (at < bytes.size() && (bytes[at] & 0xC0) == 0x80) ++at;
  }
  constexpr int64_t kGoodForEachBad = 4;
  if (!declared && good < kGoodForEachBad * result.replaced) return std::nullopt;
  return result;
}

// Whether a character joined to the one before it makes a word that no language has: a capital
// after a small letter, a sign after a letter, letters of two scripts.
bool IsOdd(utf8proc_int32_t before, utf8proc_int32_t letter) {
  constexpr utf8proc_int32_t kAscii = 0x80, kAfterLatin = 0x370;
  if (before < kAscii && letter < kAscii) return false;
  const utf8proc_category_t first = utf8proc_category(before), second = utf8proc_category(letter);
  const auto is_letter = [](utf8proc_category_t category) {
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  };
  if (!is_letter(first)) return false;
  if (second >= UTF8PROC_CATEGORY_SM && second <= UTF8PROC_CATEGORY_SO) return letter >= kAscii;
  if (!is_letter(second)) return false;
  if (first == UTF8PROC_CATEGORY_LL && second == UTF8PROC_CATEGORY_LU) return true;
  return (before < kAfterLatin) != (letter < kAfterLatin);
}

// Whether a sign stands inside a word, as in "ja\u00BC\u00F1": a letter of another encoding.
bool PartsWord(utf8proc_int32_t before, utf8proc_int32_t sign, utf8proc_int32_t after) {
  constexpr utf8proc_int32_t kAscii = 0x80;
  const auto is_letter = [](utf8proc_int32_t code) {
    const utf8proc_category_t category = utf8proc_category(code);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
  };
  const utf8proc_category_t kind = utf8proc_category(sign);
  const bool is_sign = kind == UTF8PROC_CATEGORY_NO || kind == UTF8PROC_CATEGORY_PO;
  return sign >= kAscii && is_sign && is_letter(before) && is_letter(after);
}

int64_t CountOdd(absl::string_view text) {
  int64_t count = 0;
  utf8proc_int32_t earlier = ' ', before = ' ', letter = ' ';
  while (!text.empty()) {
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                         static_cast<utf8proc_ssize_t>(text.size()), &letter);
    if (bytes <= 0) return count;
    count += IsOdd(before, letter) || PartsWord(earlier, before, letter) ? 1 : 0;
    earlier = before;
    before = letter;
    text.remove_prefix(static_cast<size_t>(bytes));
  }
  return count;
}

// The encoding in which the fewest words are odd; of equal ones, the first: what uchardet guesses,
// or the Windows code page of its kind.
std::optional<Utf8Text> Guessed(absl::string_view bytes) {
  const std::string lines = TellingLines(bytes);
  const std::string guess = Guess(lines);
  std::vector<std::string> candidates;
  for (const auto& [iso, windows] : kWindowsPages) {
    if (guess != iso) continue;
    // Text detected as Latin-1 is nearly always Windows-1252.
    if (iso == "ISO-8859-1") {
      candidates = {windows, guess};
    } else {
      candidates = {guess, windows};
    }
  }
  if (candidates.empty() && !guess.empty()) candidates.push_back(guess);
  for (const char* page : {"1252", "1250", "1251", "1253", "1254", "1257", "1255", "1256"}) {
    candidates.push_back(absl::StrCat("WINDOWS-", page));
  }
  candidates.emplace_back("ISO-8859-2");
  // Of DOS and of old Macs. Read as one of these, the letters of another encoding are odd.
  candidates.emplace_back("IBM437");
  candidates.emplace_back("MACINTOSH");
  std::vector<std::pair<int64_t, std::string>> fitting;
  for (const std::string& candidate : candidates) {
    const std::optional<Utf8Text> text = Converted(lines, candidate, 0);
    if (!text.has_value() || CountControls(text->text) > 0) continue;
    fitting.emplace_back(CountOdd(text->text), candidate);
  }
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [odd, candidate] : fitting) {
    std::optional<Utf8Text> text = Converted(bytes, candidate, 0);
    if (!text.has_value() || CountControls(text->text) > 0) continue;
    text->guessed = true;
    return text;
  }
  return std::nullopt;
}

absl::Status NotText(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      what,
      " is not text, nor in a format that can be read: txt, md, html, pdf, docx, pptx, xlsx, odt, "
      "epub, eml, mbox, csv, json, source code, and gz and zip files of these"));
}

bool IsUtf8Name(absl::string_view name) {
  return absl::EqualsIgnoreCase(name, "utf-8") || absl::EqualsIgnoreCase(name, "utf8");
}

absl::StatusOr<Utf8Text> Stated(absl::string_view what, absl::string_view bytes,
                                const std::string& encoding) {
  absl::ConsumePrefix(&bytes, "\xEF\xBB\xBF");
  std::optional<Utf8Text> text = IsUtf8Name(encoding) ? NearlyUtf8(bytes, /*declared=*/true)
                                                      : Converted(bytes, encoding, MostBad(bytes));
  if (text.has_value() && absl::StrContains(text->text, '\0')) return NotText(what);
  if (text.has_value()) return *std::move(text);
  return absl::InvalidArgumentError(absl::StrCat(
      what, " is not ", encoding, " text; without --encoding the encoding is detected"));
}

}  // namespace

bool IsEncoding(const std::string& name) {
  const iconv_t converter = iconv_open("UTF-8", name.c_str());
  if (converter == reinterpret_cast<iconv_t>(-1)) return false;
  iconv_close(converter);
  return true;
}

int64_t CountControls(absl::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool is_usual = (c >= '\b' && c <= '\r') || c == 0x1B;
    count += (c < 0x20 && !is_usual) || c == 0x7F ? 1 : 0;
    // U+0080 to U+009F, of which U+0085 ends a line.
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    count += c == 0xC2 && next >= 0x80 && next < 0xA0 && next != 0x85 ? 1 : 0;
  }
  return count;
}

bool IsSuspicious(absl::string_view text) {
  for (const auto& [escape, encoding] : kEscapes) {
    if (absl::StrContains(text, escape)) return true;
  }
  return CountControls(text) > 0 || absl::StrContains(text, kHzBegin);
}

std::vector<std::string> DescribeConversion(absl::string_view what, const Utf8Text& text) {
  std::vector<std::string> sentences;
  if (!text.converted_from.empty()) {
    sentences.push_back(
        absl::StrCat(what, " was converted from ", text.converted_from, " to UTF-8",
                     text.guessed ? ", which is a guess; --encoding NAME overrides it" : ""));
  }
  if (text.replaced > 0) {
    sentences.push_back(
        absl::StrCat(what, ": replaced ", text.replaced, text.replaced == 1 ? " byte" : " bytes",
                     " (at ", text.first_replaced, text.replaced == 1 ? "" : " and after",
                     ") that ", text.replaced == 1 ? "is" : "are", " not ",
                     text.converted_from.empty() ? "UTF-8" : text.converted_from, " by U+FFFD"));
  }
  const int64_t controls = CountControls(text.text);
  if (controls > 0) {
    sentences.push_back(absl::StrCat(
        what, " has ", controls, controls == 1 ? " control character" : " control characters",
        ", so it may be damaged or in another encoding; --encoding NAME names it"));
  }
  return sentences;
}

absl::StatusOr<Utf8Text> ToUtf8(absl::string_view what, std::string bytes,
                                const EncodingNames& names) {
  if (!names.forced.empty()) return Stated(what, bytes, names.forced);
  for (const ByteOrderMark& mark : kMarks) {
    absl::string_view rest = bytes;
    if (!absl::ConsumePrefix(&rest, mark.bytes)) continue;
    std::optional<Utf8Text> text = Converted(rest, mark.encoding, MostBad(rest));
    if (text.has_value()) {
      text->first_replaced += mark.bytes.size();
      return *std::move(text);
    }
    return absl::InvalidArgumentError(
        absl::StrCat(what, " begins like ", mark.encoding,
                     " text, but the rest is not; it may be cut off or broken"));
  }
  if (absl::StartsWith(bytes, "\xEF\xBB\xBF")) bytes.erase(0, 3);
  const std::optional<size_t> bad = FindInvalidUtf8(bytes);
  const bool has_zero = absl::StrContains(bytes, '\0');
  if (has_zero) {
    std::optional<Utf8Text> wide = Utf16WithoutMark(bytes);
    if (wide.has_value()) return *std::move(wide);
    return NotText(what);
  }
  for (const auto& [escape, encoding] : kEscapes) {
    if (bad.has_value() || !absl::StrContains(bytes, escape)) continue;
    std::optional<Utf8Text> text = Converted(bytes, encoding, MostBad(bytes));
    if (text.has_value()) return *std::move(text);
  }
  if (!bad.has_value() && absl::StrContains(bytes, kHzBegin)) {
    std::optional<Utf8Text> text = FromHz(bytes);
    if (text.has_value()) return *std::move(text);
  }
  if (!bad.has_value()) return Utf8Text{.text = std::move(bytes)};
  const bool says_utf8 = IsUtf8Name(names.declared);
  std::optional<Utf8Text> text;
  if (!names.declared.empty() && !says_utf8) text = Converted(bytes, names.declared, 0);
  if (!text.has_value()) text = NearlyUtf8(bytes, says_utf8);
  if (!text.has_value() && !names.declared.empty()) {
    text = Converted(bytes, names.declared, MostBad(bytes));
  }
  if (!text.has_value()) text = Guessed(bytes);
  if (text.has_value()) return *std::move(text);
  return absl::InvalidArgumentError(absl::StrCat(
      what, " is not UTF-8 text (byte ", *bad,
      ") and its encoding cannot be detected; give it with --encoding, or convert the file first"));
}

}  // namespace annulus::client
