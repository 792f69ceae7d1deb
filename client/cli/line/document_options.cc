#include "client/cli/line/document_options.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/line/help.h"
#include "client/read/encoding.h"

namespace annulus::client {

void AddReadOptions(CLI::App& command, ReadOptions& options) {
  command
      .add_option_function<std::vector<std::string>>(
          "--with",
          [&options](const std::vector<std::string>& parts) {
            for (const std::string& part : parts) {
              options.headers = options.headers || part == "headers";
              options.comments = options.comments || part == "comments";
              options.alt = options.alt || part == "alt";
            }
          },
          "Also read these parts of documents: headers (page headers and footers), comments, alt "
          "(descriptions of pictures); separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"headers", "comments", "alt"}))
      ->type_name("PARTS");
  command
      .add_option(
          "--encoding", options.encoding,
          "Encoding of text files that are not UTF-8, such as windows-1250; default: detected")
      ->check([](const std::string& name) {
        return IsEncoding(name) ? std::string()
                                : absl::StrCat(name, " is not an encoding; 'iconv -l' lists them");
      })
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "--pdf",
          [&options](const std::string& order) {
            options.pdf = order == "reading"  ? PdfOrder::kReading
                          : order == "layout" ? PdfOrder::kLayout
                                              : PdfOrder::kByPage;
          },
          "How to read pdf pages: reading (columns one after the other), layout (as on the page), "
          "or auto (chooses for each page)")
      ->check(CLI::IsMember({"auto", "reading", "layout"}))
      ->type_name("ORDER");
  command.add_flag(
      "--ocr", options.ocr,
      "Recognize the text of pdf pages that are pictures (runs ocrmypdf, which must be "
      "installed; seconds for each page)");
  command
      .add_option_function<std::string>(
          "--ocr-languages",
          [&options](const std::string& languages) {
            options.ocr = true;
            options.ocr_languages = languages;
          },
          "Languages of those pages, names of tesseract such as deu or deu+fra (default: eng); "
          "turns --ocr on")
      ->check([](const std::string& languages) {
        const bool good = absl::ascii_isalpha(static_cast<unsigned char>(languages[0])) &&
                          std::all_of(languages.begin(), languages.end(), [](unsigned char c) {
                            return absl::ascii_isalnum(c) || c == '_' || c == '+';
                          });
        return good ? std::string()
                    : absl::StrCat(languages, " is not a list of languages such as deu+fra");
      })
      ->type_name("NAMES");
}

void AddDocumentFlag(CLI::App& command, std::vector<std::string>& documents) {
  command
      .add_option(
          kDocumentFlag, documents,
          "A text to place before the prompt: a file, - for standard input, or the name of a "
          "document on the server; may be repeated")
      ->allow_extra_args(false)
      ->type_name("DOC");
}

void AddDocumentOptions(CLI::App& command, DocumentChoice& choice) {
  const auto add = [&](const char* flag, std::vector<std::string>& patterns, const char* help) {
    command.add_option(flag, patterns, help)->allow_extra_args(false)->type_name("PATTERN");
  };
  add("--include", choice.files.include,
      "Only files that match, such as '*.md'; applies to folders and patterns; may be repeated");
  add("--exclude", choice.files.exclude, "Skip files that match; applies to folders and patterns");
  command.add_flag("--skip-unreadable", choice.skip_unreadable,
                   "Skip files that cannot be read; the exit code is then 3");
  command.add_flag("--strict", choice.strict,
                   "Exit with code 3 if a part of a file cannot be read, such as scanned pages");
  AddReadOptions(command, choice.read);
}

// Adds a separate option for each argument. With one option of many values, CLI11 would split an
// argument in square brackets, which may be a question.
void AddDocumentsAndQuestion(CLI::App& command, std::vector<std::string>& words,
                             size_t argument_count, absl::string_view without_documents) {
  const auto add = [&](const std::string& name, const std::string& help) {
    return command.add_option_function<std::string>(
        name, [&words](const std::string& value) { words.push_back(value); }, help);
  };
  add("DOC...",
      absl::StrCat(
          "Documents: files (txt, md, html, pdf, docx, pptx, xlsx, odt, epub, eml, mbox, csv, "
          "json, source code, gz and zip of these), folders, patterns such as "
          "'reports/**/*.pdf', - for "
          "standard input, or names of documents on the server. A file is uploaded once. "
          "Default: ",
          without_documents))
      ->required();
  add("QUESTION", "What to ask, the last argument; - for standard input");
  for (size_t i = 2; i < argument_count; ++i) add(absl::StrCat("DOC", i), "")->group("");
}

}  // namespace annulus::client
