// How documents come to a question: files of every kind, folders, patterns, pipes; and what is
// stored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/typed.h"
#include "tests/support/test_data.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class TypedReadingTest : public TypedTest {
 protected:
  void SetUp() override {
    const fs::path fixtures = testing::SourceFolder() / "tests" / "client" / "read" / "fixtures";
    fs::copy(fixtures, folder_.path() / "files", fs::copy_options::recursive);
    Write("notes.txt", "The pilot at BRAE is called 2290-KNOT.\nNothing else.\n");
  }
};

// The question follows what the model reads of the file.
TEST_F(TypedReadingTest, EveryKindOfFileIsReadByWhatItHolds) {
  for (const char* const name :
       {"report.docx", "minutes.docx", "lists.docx", "report.odt", "lists.odt", "report.epub",
        "page.html", "pages.pdf", "note.txt.gz", "latin.txt", "wide.txt", "make.py"}) {
    SCOPED_TRACE(name);
    const std::string expected = fs::exists(Path(absl::StrCat("files/expected/", name, ".txt")))
                                     ? Read(absl::StrCat("files/expected/", name, ".txt"))
                                     : Read(absl::StrCat("files/", name));
    fs::rename(Path(absl::StrCat("files/", name)), Path("unnamed"));
    EXPECT_THAT(Shown("annulus ask unnamed Who? --show-prompt"), HasSubstr(expected + "Who?\n"));
  }
  Write("table.csv", "port,ships\nBRAE,12\n");
  Write("rows.jsonl", "{\"port\": \"BRAE\"}\n{\"port\": \"NESS\"}\n");
  Type({
      {"annulus ask table.csv rows.jsonl Who? --show-prompt",
       0,
       {"port,ships\nBRAE,12\n", "{\"port\": \"NESS\"}\nWho?"}},
      {"annulus ask files/several.zip Who? --show-prompt",
       0,
       {"# first\nsecond\nx,y\n1,2\n{\"deep\": true}\nWho?"},
       {"never"}},
  });
}

TEST_F(TypedReadingTest, WhatIsNoUtf8IsConvertedAndSaid) {
  Type({
      {"annulus ask files/latin.txt Who? --show-prompt",
       0,
       {"files/latin.txt was converted from WINDOWS-1252 to UTF-8", "garçon"}},
      {"annulus ask files/wide.txt Who? --show-prompt",
       0,
       {"files/wide.txt was converted from UTF-16LE to UTF-8", "naïve"}},
  });
}

TEST_F(TypedReadingTest, WhatCannotBeReadIsOneSentence) {
  Write("broken.pdf", "%PDF-1.4\nnothing that follows is a PDF\n");
  Write("broken.docx", "PK\x03\x04 nothing that follows is an archive");
  Write("picture.png", "\x89PNG\r\n\x1a\n");
  Write("old.doc", "\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1");
  Write("empty.txt", "");
  Type({
      {"annulus ask files/scanned.pdf Who?",
       3,
       {"files/scanned.pdf has 2 pages but no text", "ocrmypdf"}},
      {"annulus ask files/encrypted.pdf Who?", 2, {"files/encrypted.pdf is encrypted", "qpdf"}},
      {"annulus ask broken.pdf Who?", 2, {"broken.pdf is not a PDF that can be read"}},
      {"annulus ask broken.docx Who?", 2, {"broken.docx"}},
      {"annulus ask picture.png Who?", 2, {"picture.png is a picture", "tesseract"}},
      {"annulus ask old.doc Who?", 2, {"old.doc is an old Office file"}},
      {"annulus ask empty.txt Who?", 2, {"empty.txt is empty"}},
      {"A=$(command -v annulus); PATH=/nonexistent; \"$A\" ask files/pages.pdf Who?",
       2,
       {"apt-get install poppler-utils"}},
      {"annulus ask files 'a port?' --skip-unreadable --show-prompt",
       3,
       {"skipped: files/encrypted.pdf is encrypted", "skipped: files/scanned.pdf has 2 pages",
        "The harbour froze."}},
      {"annulus ask files/scanned.pdf Who? --skip-unreadable", 2, {"none of the documents"}},
  });
}

TEST_F(TypedReadingTest, FoldersAndPatternsStandForFiles) {
  fs::create_directories(Path("reports/old/.hidden"));
  for (const char* const name : {"reports/may.txt", "reports/draft-june.txt", "reports/april.md",
                                 "reports/old/1999.txt", "reports/old/.hidden/no.txt"}) {
    Write(name, absl::StrCat("this is ", name, "\n"));
  }
  Write("reports/a[1].txt", "this is a path\n");
  Write("reports/a1.txt", "this is a match\n");
  Type({
      {"annulus ask reports Who? --show-prompt",
       0,
       {"reports/may.txt", "reports/april.md", "reports/old/1999.txt"},
       {"hidden"}},
      {"annulus ask 'reports/**/*.txt' Who? --show-prompt --exclude 'draft*'",
       0,
       {"reports/may.txt", "reports/old/1999.txt"},
       {"april", "draft"}},
      {"annulus ask reports/ Who? --show-prompt --include '*.md'", 0, {"april"}, {"may"}},
      {"annulus ask 'reports/a[1].txt' Who? --show-prompt", 0, {"a path"}, {"a match"}},
      {"annulus ask 'reports/*.pdf' Who?", 2, {"no file matches reports/*.pdf"}},
      {"annulus ask reports Who? --include '*.pdf'",
       2,
       {"no file is in reports that --include and --exclude leave"}},
      {"annulus ask nowhere.txt Who?",
       64 + 5,
       {"nowhere.txt is neither a local file nor a document on the server"}},
  });
}

TEST_F(TypedReadingTest, APipeIsADocumentUnlessOneIsNamed) {
  const std::string ask = "ask 'The pilot at BRAE is called ' --stop '\\n' --quiet";
  Write("names.txt", "one\ntwo\nthree\n");
  Type({
      {"cat notes.txt | annulus " + ask, 0, {"2290-KNOT."}},
      {"annulus " + ask + " </dev/null", 2, {"standard input is empty"}},
      {"annulus " + ask, 2, {"a document and a QUESTION are required"}, {"standard input"}},
      // The list is the loop's.
      {"while read name; do echo \"$name:\"; annulus ask notes.txt 'The pilot at BRAE is called ' "
       "--stop '\\n' --quiet; done <names.txt",
       0,
       {"one:\n2290-KNOT.\ntwo:\n2290-KNOT.\nthree:\n2290-KNOT.\n"}},
      {"echo 'The pilot at BRAE is called ' | tr -d '\\n' | annulus ask notes.txt - --stop '\\n' "
       "-n 10",
       0,
       {"2290-KNOT."}},
  });
}

TEST_F(TypedReadingTest, DocumentsAreKeptByName) {
  Write("may.txt", "May was dry.\n");
  Write("june.txt", "June was wet.\n");
  Type({
      {"annulus documents put may.txt june.txt 'files/r*.docx' nowhere.txt",
       3,
       {"may.txt", "june.txt", "report.docx", "cannot open nowhere.txt"}},
      {"annulus documents ls", 0, {"may.txt", "june.txt", "report.docx"}},
      {"annulus documents list 'j*'", 0, {"june.txt"}, {"may.txt"}},
      {"annulus documents show may.txt 'j*'", 0, {"title   may.txt", "title   june.txt", "13 B"}},
      {"cat notes.txt | annulus documents put - --name pilots", 0, {"name    pilots"}},
      {"cd /; annulus ask pilots 'The pilot at BRAE is called ' --stop '\\n' --quiet",
       0,
       {"2290-KNOT."}},
      {"annulus documents rm may.txt 'j*'", 0, {"deleted may.txt", "deleted june.txt"}},
      {"annulus documents rm may.txt", 64 + 5, {"there is no document \"may.txt\""}},
      {"annulus documents rm may.txt pilots", 3, {"deleted pilots"}},
      {"annulus documents rm may.txt 'j*' --force", 0},
      {"annulus documents delete report.docx", 0, {"deleted report.docx"}},
  });
}

}  // namespace
}  // namespace annulus::server
