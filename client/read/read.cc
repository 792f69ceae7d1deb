#include "client/read/read.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/read/archive.h"
#include "client/read/docx.h"
#include "client/read/encoding.h"
#include "client/read/epub.h"
#include "client/read/html.h"
#include "client/read/kind.h"
#include "client/read/odt.h"
#include "client/read/pdf.h"

namespace annulus::client {
namespace {

constexpr char kBlanks[] = " \t\n\r\f\v";

FileText Converted(const std::string& title, absl::StatusOr<Utf8Text> result) {
  if (!result.ok()) return {title, result.status()};
  FileText read{title, std::move(result->text)};
  if (!result->converted_from.empty()) {
    read.remark = absl::StrCat(title, " was converted from ", result->converted_from, " to UTF-8");
  }
  return read;
}

class FileReader {
 public:
  explicit FileReader(const ReadLimits& limits) : budget_(limits) {}

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
    switch (detected.kind) {
      case FileKind::kText:
        texts_.push_back(Converted(title, ToUtf8(title, std::move(bytes))));
        return;
      case FileKind::kHtml:
        texts_.push_back(Converted(title, ReadHtml(title, std::move(bytes), budget_)));
        return;
      case FileKind::kPdf:
        texts_.push_back({title, ReadPdf(title, bytes, budget_)});
        return;
      case FileKind::kGzip:
        return ReadGzip(title, bytes, depth);
      case FileKind::kZip:
        return ReadZip(title, bytes, depth);
      case FileKind::kOther:
        return Fail(title, absl::InvalidArgumentError(absl::StrCat(title, " ", detected.why)));
    }
  }

 private:
  void Fail(const std::string& title, absl::Status status) {
    texts_.push_back({title, std::move(status)});
  }

  // Returns false and records a failure if archives are nested too deeply.
  bool MayGoDeeper(const std::string& title, int depth) {
    if (depth < budget_.limits().nesting) return true;
    Fail(title, absl::ResourceExhaustedError(
                    absl::StrCat(title, " is the ", budget_.limits().nesting + 1,
                                 "th archive inside another; unpack it and give the parts")));
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
    if (IsDocx(**archive)) {
      texts_.push_back({title, ReadDocx(title, **archive, budget_)});
    } else if (absl::StartsWith(type, "application/vnd.oasis.opendocument.text")) {
      texts_.push_back({title, ReadOdt(title, **archive, budget_)});
    } else if (absl::StartsWith(type, "application/epub+zip")) {
      texts_.push_back({title, ReadEpub(title, **archive, budget_)});
    } else if (absl::StartsWith(type, "application/vnd.oasis.opendocument") ||
               (*archive)->Find("[Content_Types].xml").has_value()) {
      Fail(title, absl::InvalidArgumentError(absl::StrCat(
                      title,
                      " is a table, slides or a drawing of an office program; save it as "
                      "csv, pdf or txt")));
    } else if (MayGoDeeper(title, depth)) {
      ReadEntries(title, **archive, depth);
    }
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

  ReadBudget budget_;
  std::vector<FileText> texts_;
};

}  // namespace

std::vector<FileText> ReadBytes(const std::string& title, std::string bytes,
                                const ReadLimits& limits) {
  FileReader reader(limits);
  if (static_cast<int64_t>(bytes.size()) > limits.file_bytes) {
    return {{title, absl::ResourceExhaustedError(absl::StrCat(title, " is larger than ",
                                                              limits.file_bytes >> 20,
                                                              " MiB; give its parts as files"))}};
  }
  reader.Read(title, std::move(bytes), 0);
  return reader.TakeTexts();
}

}  // namespace annulus::client
