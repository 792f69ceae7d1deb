#include "client/read/pdf/pdf_notes.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/format/text.h"
#include "client/read/pdf/qdf.h"

namespace annulus::client {
namespace {

constexpr std::array<absl::string_view, 15> kNotes = {
    "/Text",    "/Highlight", "/Underline", "/Squiggly", "/StrikeOut",
    "/Caret",   "/Stamp",     "/Line",      "/Square",   "/Circle",
    "/Polygon", "/PolyLine",  "/Ink",       "/Redact",   "/FileAttachment"};

// Of annotation flags.
constexpr int kHidden = 1 << 1, kNoView = 1 << 5;

// Bytes of PDFDocEncoding from 0x80 to 0xA0, as code points (ISO 32000-1, D.3); the others beyond
// are those of Latin-1.
constexpr std::array<uint16_t, 33> kDocEncoding = {
    0x2022, 0x2020, 0x2021, 0x2026, 0x2014, 0x2013, 0x0192, 0x2044, 0x2039, 0x203A, 0x2212,
    0x2030, 0x201E, 0x201C, 0x201D, 0x2018, 0x2019, 0x201A, 0x2122, 0xFB01, 0xFB02, 0x0141,
    0x0152, 0x0160, 0x0178, 0x017D, 0x0131, 0x0142, 0x0153, 0x0161, 0x017E, 0xFFFD, 0x20AC};

void AppendCodePoint(int32_t code, std::string* text) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const utf8proc_ssize_t count = utf8proc_encode_char(code, bytes.data());
  text->append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(count));
}

// What stands behind a backslash in a literal string; moves `at` behind it.
void AppendEscaped(absl::string_view literal, size_t* at, std::string* bytes) {
  constexpr absl::string_view kLetters = "nrtbf", kMeanings = "\n\r\t\b\f";
  const char c = literal[(*at)++];
  if (c >= '0' && c <= '7') {
    int value = c - '0';
    for (int i = 0; i < 2 && *at < literal.size() && literal[*at] >= '0' && literal[*at] <= '7';
         ++i) {
      value = 8 * value + (literal[(*at)++] - '0');
    }
    bytes->push_back(static_cast<char>(value));
    return;
  }
  const size_t letter = kLetters.find(c);
  if (c != '\n') bytes->push_back(letter == absl::string_view::npos ? c : kMeanings[letter]);
}

// The bytes of "(text)" or "<hex>"; empty for anything else.
std::string StringBytes(absl::string_view value) {
  std::string bytes;
  if (absl::ConsumePrefix(&value, "(") && absl::ConsumeSuffix(&value, ")")) {
    for (size_t at = 0; at < value.size();) {
      if (value[at] != '\\') {
        bytes.push_back(value[at++]);
      } else if (++at < value.size()) {
        AppendEscaped(value, &at, &bytes);
      }
    }
  } else if (absl::ConsumePrefix(&value, "<") && absl::ConsumeSuffix(&value, ">")) {
    for (size_t at = 0; at + 1 < value.size(); at += 2) {
      uint32_t byte = 0;
      if (!absl::SimpleHexAtoi(value.substr(at, 2), &byte)) return "";
      bytes.push_back(static_cast<char>(byte));
    }
  }
  return bytes;
}

std::string FromUtf16(absl::string_view bytes) {
  std::string text;
  const auto unit = [&](size_t at) {
    return static_cast<uint8_t>(bytes[at]) << 8 | static_cast<uint8_t>(bytes[at + 1]);
  };
  for (size_t at = 0; at + 1 < bytes.size(); at += 2) {
    int32_t code = unit(at);
    const bool is_high = code >= 0xD800 && code < 0xDC00 && at + 3 < bytes.size();
    const int32_t low = is_high ? unit(at + 2) : 0;
    if (low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      at += 2;
    } else if (code >= 0xD800 && code < 0xE000) {
      code = 0xFFFD;
    }
    AppendCodePoint(code, &text);
  }
  return text;
}

// A text string (ISO 32000-1, 7.9.2.2) in UTF-8.
std::string TextOf(absl::string_view value) {
  const std::string bytes = StringBytes(value);
  absl::string_view rest = bytes;
  std::string text;
  if (absl::ConsumePrefix(&rest, "\xFE\xFF")) {
    text = FromUtf16(rest);
  } else if (absl::ConsumePrefix(&rest, "\xEF\xBB\xBF") && !FindInvalidUtf8(rest).has_value()) {
    text = std::string(rest);
  } else {
    for (const char c : rest) {
      const auto code = static_cast<uint8_t>(c);
      AppendCodePoint(code >= 0x80 && code <= 0xA0 ? kDocEncoding[code - 0x80u] : code, &text);
    }
  }
  text = absl::StrReplaceAll(text, {{"\r\n", "\n"}, {"\r", "\n"}});
  std::erase_if(text, [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\n' && c != '\t';
  });
  return std::string(absl::StripAsciiWhitespace(text));
}

// The note that an annotation is; nullopt if it is none.
std::optional<PdfNote> ReadNote(absl::string_view lines) {
  PdfNote note;
  absl::string_view kind;
  int flags = 0;
  for (QdfEntry entry; TakeQdfEntry(&lines, &entry);) {
    if (entry.name == "Subtype") kind = entry.value;
    if (entry.name == "Contents") note.text = TextOf(entry.value);
    if (entry.name == "T") note.author = TextOf(entry.value);
    if (entry.name == "F" && !absl::SimpleAtoi(entry.value, &flags)) flags = 0;
  }
  if (note.text.empty() || std::find(kNotes.begin(), kNotes.end(), kind) == kNotes.end())
    return std::nullopt;
  note.hidden = (flags & (kHidden | kNoView)) != 0;
  return note;
}

// The numbers of objects in "4 0 R" and the like, in their order.
std::vector<int> References(absl::string_view lines) {
  std::vector<int> numbers;
  const std::vector<absl::string_view> words =
      absl::StrSplit(lines, absl::ByAnyChar(" \n[]"), absl::SkipEmpty());
  for (size_t i = 2; i < words.size(); ++i) {
    int number = 0;
    if (words[i] == "R" && absl::SimpleAtoi(words[i - 2], &number)) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::vector<PdfNote> FindPdfNotes(absl::string_view qdf) {
  std::vector<PdfNote> notes;
  if (!absl::StrContains(qdf, "\n  /Contents ")) return notes;
  const std::vector<QdfObject> objects = FindQdfObjects(qdf);
  std::unordered_map<int, absl::string_view> lines_of;
  for (const QdfObject& object : objects) lines_of.emplace(object.number, object.lines);
  // Each once: a file may name the same annotation, or the same array of them, very often.
  const auto take = [&](int number) {
    const auto found = lines_of.find(number);
    if (found == lines_of.end()) return absl::string_view();
    return std::exchange(found->second, {});
  };
  for (const QdfObject& object : objects) {
    if (object.page == 0) continue;
    absl::string_view lines = object.lines;
    for (QdfEntry entry; TakeQdfEntry(&lines, &entry);) {
      if (entry.name != "Annots") continue;
      std::vector<int> annotations = References(entry.lines);
      // The array may be an object of its own.
      if (!absl::StartsWith(entry.value, "[") && annotations.size() == 1) {
        annotations = References(take(annotations[0]));
      }
      for (const int annotation : annotations) {
        std::optional<PdfNote> note = ReadNote(take(annotation));
        if (!note.has_value()) continue;
        note->page = object.page;
        notes.push_back(*std::move(note));
      }
    }
  }
  return notes;
}

}  // namespace annulus::client
