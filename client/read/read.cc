#include "client/read/read.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/read/archive.h"
#include "client/read/eml.h"
#include "client/read/encoding.h"
#include "client/read/kind.h"
#include "client/read/office/docx.h"
#include "client/read/office/odt.h"
#include "client/read/office/package.h"
#include "client/read/office/pptx.h"
#include "client/read/office/xlsx.h"
#include "client/read/pdf/pdf.h"
#include "client/read/web/epub.h"
#include "client/read/web/html.h"
#include "client/read/xml.h"

namespace annulus::client {
namespace {

constexpr char kBlanks[] = " \t\n\r\f\v";

class FileReader {
 public:
  FileReader(const ReadLimits& limits, const ReadOptions& options)
      : options_(options), budget_(limits) {}

  std::vector<FileText> TakeTexts() {
    for (FileText& read : texts_) {
      if (!read.text.ok() || read.text->find_first_not_of(kBlanks) != std::string::npos) continue;
      read.text = absl::InvalidArgumentError(
          absl::StrCat(read.title, " is empty; a document needs some text"));
    }
    return std::move(texts_);
  }

  // `depth` is the number of archives that contain this file.
  void Read(const std::string& title, std::string bytes, int depth) {
    const Detected detected = DetectKind(bytes);
    ReadContext context{budget_, options_};
    switch (detected.kind) {
      case FileKind::kText:
        return ReadText(title, std::move(bytes));
      case FileKind::kHtml:
        return ReadPage(title, std::move(bytes), context);
      case FileKind::kPdf:
        return Add(title, ReadPdf(title, bytes, context), context);
      case FileKind::kMail:
        return ReadMail(title, bytes, depth);
      case FileKind::kMailbox:
        return ReadMailbox(title, bytes, depth);
      case FileKind::kGzip:
        return ReadGzip(title, bytes, depth);
      case FileKind::kZip:
        return ReadZip(title, bytes, depth);
      case FileKind::kOther:
        return Fail(title, absl::InvalidArgumentError(absl::StrCat(title, " ", detected.why)));
    }
  }

 private:
  // Adds a text that was read, with what there is to say about it.
  void Add(const std::string& title, absl::StatusOr<std::string> text, const ReadContext& context) {
    FileText read{title, std::move(text), context.remarks, context.incomplete};
    for (std::string& sentence : DescribeLeftOut(title, context.left_out)) {
      read.remarks.push_back(std::move(sentence));
    }
    texts_.push_back(std::move(read));
  }

  void ReadText(const std::string& title, std::string bytes) {
    ReadContext context{budget_, options_};
    absl::StatusOr<Utf8Text> text = ToUtf8(title, std::move(bytes), {.forced = options_.encoding});
    if (!text.ok()) return Fail(title, text.status());
    context.remarks = DescribeConversion(title, *text);
    // In UTF-16 and the like, only the converted text tells.
    if (!text->converted_from.empty() && DetectKind(text->text).kind == FileKind::kHtml) {
      ReadOptions as_utf8 = options_;
      as_utf8.encoding.clear();
      ReadContext page_context{budget_, as_utf8, {}, context.remarks};
      absl::StatusOr<Utf8Text> page = ReadHtml(title, std::move(text->text), page_context);
      if (!page.ok()) return Fail(title, page.status());
      return Add(title, std::move(page->text), page_context);
    }
    Add(title, std::move(text->text), context);
  }

  void ReadPage(const std::string& title, std::string bytes, ReadContext& context) {
    absl::StatusOr<Utf8Text> page = ReadHtml(title, std::move(bytes), context);
    if (!page.ok()) return Fail(title, page.status());
    for (std::string& sentence : DescribeConversion(title, *page)) {
      context.remarks.push_back(std::move(sentence));
    }
    Add(title, std::move(page->text), context);
  }

  void ReadMail(const std::string& title, absl::string_view bytes, int depth) {
    ReadContext context{budget_, options_};
    absl::StatusOr<Mail> mail = ReadEml(title, bytes, context);
    if (!mail.ok()) return Fail(title, mail.status());
    AddMail(title, *std::move(mail), context, depth);
  }

  // All mails are one document: there may be more than a server stores.
  void ReadMailbox(const std::string& title, absl::string_view bytes, int depth) {
    ReadContext context{budget_, options_};
    Mail all;
    int number = 0;
    for (const absl::string_view message : SplitMailbox(bytes)) {
      ++number;
      // In the mailbox, lines of a text that begin with "From " are quoted.
      const std::string unquoted = absl::StrReplaceAll(message, {{"\n>From ", "\nFrom "}});
      absl::StatusOr<Mail> mail = ReadEml(title, unquoted, context);
      if (!mail.ok() && mail.status().code() != absl::StatusCode::kInvalidArgument) {
        return Fail(title, mail.status());
      }
      if (!mail.ok()) {
        context.incomplete = true;
        context.remarks.push_back(
            absl::StrCat(title, ": mail ", number, " is left out: ", mail.status().message()));
        continue;
      }
      absl::StrAppend(&all.text, number == 1 ? "" : "\n", "[mail ", number, "]\n", mail->text);
      for (MailAttachment& attachment : mail->attachments) {
        attachment.name = absl::StrCat("mail-", number, "-", NameWithin(attachment));
        all.attachments.push_back(std::move(attachment));
      }
    }
    AddMail(title, std::move(all), context, depth);
  }

  static std::string NameWithin(const MailAttachment& attachment) {
    return attachment.name.empty() ? "attachment"
                                   : attachment.name.substr(attachment.name.rfind('/') + 1);
  }

  void AddMail(const std::string& title, Mail mail, ReadContext& context, int depth) {
    std::vector<MailAttachment> read;
    for (MailAttachment& attachment : mail.attachments) {
      const Detected detected = DetectKind(attachment.bytes);
      if (detected.kind != FileKind::kOther) {
        read.push_back(std::move(attachment));
        continue;
      }
      // Pictures and the like are no reason to refuse the mail.
      context.remarks.push_back(absl::StrCat(title, ": left out its attachment ", attachment.name,
                                             ", which ", detected.why));
    }
    Add(title, std::move(mail.text), context);
    if (read.empty() || !MayGoDeeper(title, depth)) return;
    int unnamed = 0;
    for (MailAttachment& attachment : read) {
      const std::string name =
          attachment.name.empty() ? absl::StrCat("attachment-", ++unnamed) : NameWithin(attachment);
      Read(absl::StrCat(title, "/", name), std::move(attachment.bytes), depth + 1);
      if (budget_.bytes_left() < 0 || budget_.TimeIsUp()) return;
    }
  }

  void Fail(const std::string& title, absl::Status status) {
    texts_.push_back({title, std::move(status)});
  }

  // Returns false and records a failure if archives are nested too deeply.
  bool MayGoDeeper(const std::string& title, int depth) {
    if (depth < budget_.limits().nesting) return true;
    Fail(title, absl::ResourceExhaustedError(
                    absl::StrCat(title, " is the ", budget_.limits().nesting + 1,
                                 "th nested archive; unpack it and give the files")));
    return false;
  }

  void ReadGzip(const std::string& title, absl::string_view bytes, int depth) {
    if (!MayGoDeeper(title, depth)) return;
    absl::StatusOr<std::string> unpacked = Gunzip(title, bytes, budget_);
    if (!unpacked.ok()) return Fail(title, unpacked.status());
    absl::string_view inner = title;
    absl::ConsumeSuffix(&inner, ".gz");
    Read(std::string(inner), *std::move(unpacked), depth + 1);
  }

  void ReadZip(const std::string& title, absl::string_view bytes, int depth) {
    const auto archive = ZipArchive::Open(title, bytes);
    if (!archive.ok()) return Fail(title, archive.status());
    std::string type;  // media type that OpenDocument and EPUB files state
    if ((*archive)->Find("mimetype").has_value()) {
      const absl::StatusOr<std::string> stated = (*archive)->Read("mimetype", budget_);
      if (!stated.ok()) return Fail(title, stated.status());
      type = *stated;
    }
    ReadContext context{budget_, options_};
    const absl::StatusOr<std::string> main = MainPart(title, **archive, budget_);
    if (!main.ok()) return Fail(title, main.status());
    if (!main->empty()) {
      Add(title, ReadOffice(title, **archive, *main, context), context);
    } else if (absl::StartsWith(type, "application/vnd.oasis.opendocument.text")) {
      Add(title, ReadOdt(title, **archive, context), context);
    } else if (IsEpub(**archive) || absl::StartsWith(type, "application/epub+zip")) {
      Add(title, ReadEpub(title, **archive, context), context);
    } else if (absl::StartsWith(type, "application/vnd.oasis.opendocument")) {
      Fail(title, absl::InvalidArgumentError(
                      absl::StrCat(title,
                                   " is a table, slides or a drawing of OpenDocument; save it as "
                                   "xlsx, pptx, csv, pdf or txt")));
    } else if (MayGoDeeper(title, depth)) {
      ReadEntries(title, **archive, depth);
    }
  }

  // Reads an Office Open XML package by what its main part is.
  static absl::StatusOr<std::string> ReadOffice(const std::string& title, const ZipArchive& archive,
                                                const std::string& main, ReadContext& context) {
    const auto part = OptionalPart(title, archive, main, context.budget);
    if (!part.ok()) return part.status();
    if (*part == nullptr) return archive.Read(main, context.budget).status();
    const absl::string_view root = LocalName((*part)->document_element());
    if (root == "presentation") return ReadPptx(title, archive, main, context);
    if (root == "workbook") return ReadXlsx(title, archive, main, context);
    if (root == "document" || absl::EndsWith(main, "document.xml")) {
      return ReadDocx(title, archive, main, context);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        title, " is a drawing or another file of an office program; save it as pdf or txt"));
  }

  void ReadEntries(const std::string& title, const ZipArchive& archive, int depth) {
    const size_t before = texts_.size();
    std::vector<size_t> order;
    for (size_t i = 0; i < archive.names().size(); ++i) {
      if (IsDocument(archive.names()[i])) order.push_back(i);
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::make_pair(archive.names()[a], a) < std::make_pair(archive.names()[b], b);
    });
    for (const size_t index : order) {
      const std::string inner = absl::StrCat(title, "/", archive.names()[index]);
      absl::StatusOr<std::string> bytes = archive.Read(index, budget_);
      if (!bytes.ok()) {
        Fail(inner, bytes.status());
        // A limit was reached, so all later entries would fail too.
        if (bytes.status().code() != absl::StatusCode::kInvalidArgument) return;
        continue;
      }
      Read(inner, *std::move(bytes), depth + 1);
      if (budget_.bytes_left() < 0 || budget_.TimeIsUp()) return;
    }
    if (texts_.size() == before) {
      Fail(title, absl::InvalidArgumentError(absl::StrCat(title, " is an archive without files")));
    }
  }

  // False for folders, hidden files and the files that macOS adds.
  static bool IsDocument(const std::string& name) {
    if (name.empty() || name.back() == '/' || absl::StartsWith(name, "__MACOSX/")) return false;
    return name[name.rfind('/') + 1] != '.';
  }

  const ReadOptions options_;
  ReadBudget budget_;
  std::vector<FileText> texts_;
};

}  // namespace

std::vector<FileText> ReadBytes(const std::string& title, std::string bytes,
                                const ReadOptions& options, const ReadLimits& limits) {
  FileReader reader(limits, options);
  if (static_cast<int64_t>(bytes.size()) > limits.file_bytes) {
    return {{title, absl::ResourceExhaustedError(
                        absl::StrCat(title, " is larger than ", limits.file_bytes >> 20,
                                     " MiB; split it into several files"))}};
  }
  reader.Read(title, std::move(bytes), 0);
  return reader.TakeTexts();
}

}  // namespace annulus::client
