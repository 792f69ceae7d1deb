#include "client/read/kind.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

// Bytes that a file begins with, and more of them at a fixed place where the first are also how a
// text could begin.
struct Signature {
  absl::string_view bytes;
  absl::string_view why;
  size_t more_at = 0;
  absl::string_view more{};
};

constexpr char kPicture[] = "is a picture; convert it to text first, for example by tesseract";
constexpr char kRecording[] = "is a recording, not a text; transcribe it first";
constexpr char kPacked[] = "is in an archive format that is not supported; unpack it first";
constexpr char kProgram[] = "is a program or a library, not a document";

const Signature kUnreadable[] = {
    {"\x89PNG\r\n", kPicture},
    {"\xFF\xD8\xFF", kPicture},
    {"GIF87a", kPicture},
    {"GIF89a", kPicture},
    {"RIFF", kPicture, 8, "WEBP"},
    {"RIFF", kRecording, 8, "WAVE"},
    {"RIFF", kRecording, 8, "AVI "},
    {absl::string_view("II*\0", 4), kPicture},
    {absl::string_view("MM\0*", 4), kPicture},
    {"\x7F"
     "ELF",
     kProgram},
    {"BZh", kPacked, 4, "1AY&SY"},
    {"\xFD"
     "7zXZ",
     kPacked},
    {"\x28\xB5\x2F\xFD", kPacked},
    {"7z\xBC\xAF", kPacked},
    {"Rar!\x1A\x07", kPacked},
    {"{\\rtf", "is RTF; save it as docx, odt or txt, for example by soffice --convert-to docx"},
    {"\xD0\xCF\x11\xE0",
     "is an old Office file (doc, xls, ppt) or an encrypted one; save it as docx, odt or txt "
     "without a password"},
    {"SQLite format 3", "is a database; export what matters as csv"},
};

absl::string_view AfterMark(absl::string_view text) {
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  return absl::StripLeadingAsciiWhitespace(text);
}

// Whether a file begins with a header of POSIX tar: its magic, and a checksum that fits, since a
// text may have the same word there. The checksum is the sum of all bytes of the header, with
// blanks in place of the checksum.
bool IsTar(absl::string_view head) {
  constexpr size_t kHeader = 512;
  constexpr size_t kMagicAt = 257;
  constexpr size_t kSumAt = 148;
  constexpr size_t kSumDigits = 8;
  if (head.size() < kHeader || !absl::StartsWith(head.substr(kMagicAt), "ustar")) return false;
  uint32_t sum = 0;
  for (size_t i = 0; i < kHeader; ++i) {
    const bool in_sum = i >= kSumAt && i < kSumAt + kSumDigits;
    sum += in_sum ? ' ' : static_cast<unsigned char>(head[i]);
  }
  uint32_t stated = 0;
  for (const char c : head.substr(kSumAt, kSumDigits)) {
    if (c >= '0' && c <= '7') stated = 8 * stated + static_cast<uint32_t>(c - '0');
  }
  return stated == sum;
}

// Whether a file begins as an HTML page: with a doctype, or with html, head or body. Other tags
// prove nothing, because Markdown has them too.
bool IsHtml(absl::string_view head) {
  absl::string_view text = AfterMark(head);
  const bool is_xml = absl::StartsWith(text, "<?xml");
  while (absl::StartsWith(text, "<?") || absl::StartsWith(text, "<!--")) {
    const absl::string_view end = absl::StartsWith(text, "<?") ? "?>" : "-->";
    const size_t at = text.find(end);
    if (at == absl::string_view::npos) return false;
    text = absl::StripLeadingAsciiWhitespace(text.substr(at + end.size()));
  }
  if (is_xml && absl::StartsWithIgnoreCase(text, "<!doctype")) {
    return absl::StartsWithIgnoreCase(text, "<!doctype html");
  }
  // XHTML whose names have a prefix: "<h:html xmlns:h=...".
  const size_t colon = text.find(':');
  if (is_xml && colon < text.find_first_of("> \t\r\n") &&
      absl::StartsWith(text.substr(colon + 1), "html")) {
    return absl::StrContains(text.substr(0, text.find('>')), "http://www.w3.org/1999/xhtml");
  }
  for (const absl::string_view tag : {"<!doctype html", "<html", "<head", "<body"}) {
    if (!absl::StartsWithIgnoreCase(text, tag)) continue;
    const char next = text.size() > tag.size() ? text[tag.size()] : '>';
    if (next == '>' || absl::ascii_isspace(next)) return true;
  }
  return false;
}

// Whether a file begins as a mail message: with a block of header fields, of which several are
// those that every message has.
bool IsMail(absl::string_view head) {
  head = AfterMark(head);
  int telling = 0;
  while (!head.empty()) {
    const size_t end = head.find('\n');
    if (end == absl::string_view::npos) break;
    const absl::string_view line = absl::StripTrailingAsciiWhitespace(head.substr(0, end));
    head.remove_prefix(end + 1);
    if (line.empty()) break;
    if (line[0] == ' ' || line[0] == '\t') continue;  // goes on
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos || colon == 0) return false;
    const absl::string_view name = line.substr(0, colon);
    const bool is_name = std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return absl::ascii_isalnum(c) || c == '-' || c == '_';
    });
    if (!is_name) return false;
    for (const char* known : {"from", "date", "subject", "message-id", "mime-version", "received",
                              "return-path", "delivered-to"}) {
      telling += absl::EqualsIgnoreCase(name, known) ? 1 : 0;
    }
  }
  constexpr int kEnough = 3;
  return telling >= kEnough;
}

// Whether a file begins as a mailbox: with "From " and who sent the first mail, and then the mail.
bool IsMailbox(absl::string_view head) {
  const size_t end = head.find('\n');
  return absl::StartsWith(head, "From ") && end != absl::string_view::npos &&
         IsMail(head.substr(end + 1));
}

}  // namespace

Detected DetectKind(absl::string_view head) {
  head = head.substr(0, kDetectBytes);
  if (absl::StartsWith(head, "PK\x03\x04") || absl::StartsWith(head, "PK\x05\x06")) {
    return {FileKind::kZip};
  }
  if (absl::StartsWith(head, "\x1F\x8B")) return {FileKind::kGzip};
  // PDF readers accept the signature anywhere in the first 1024 bytes. Require it at the beginning,
  // because a text about PDF may contain it.
  if (absl::StartsWith(AfterMark(head), "%PDF-")) return {FileKind::kPdf};
  for (const Signature& signature : kUnreadable) {
    if (absl::StartsWith(head, signature.bytes) && head.size() >= signature.more_at &&
        absl::StartsWith(head.substr(signature.more_at), signature.more)) {
      return {FileKind::kOther, signature.why};
    }
  }
  if (IsTar(head)) {
    return {FileKind::kOther, "is a tar archive; unpack it and give the folder"};
  }
  if (IsMail(head)) return {FileKind::kMail};
  if (IsMailbox(head)) return {FileKind::kMailbox};
  return {IsHtml(head) ? FileKind::kHtml : FileKind::kText};
}

}  // namespace annulus::client
