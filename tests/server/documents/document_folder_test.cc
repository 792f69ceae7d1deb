// Documents that outlive the process: the folder of --documents.

#include "server/documents/document_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/documents/document_folder_fixture.h"

namespace annulus::server {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr size_t kAmple = size_t{1} << 20;

TEST_F(DocumentFolderTest, DocumentsOutliveTheProcess) {
  std::map<std::string, std::string> texts;
  for (const size_t bytes : {size_t{1}, kFileBlockBytes - 1, kFileBlockBytes, kFileBlockBytes + 1,
                             5 * kFileBlockBytes + 17}) {
    const std::string text = TextOf(bytes, 'c');
    texts[absl::StrCat("bytes-", bytes)] = text;
  }
  {
    Process first(folder());
    ASSERT_TRUE(first.status.ok()) << first.status;
    for (const auto& [name, text] : texts) {
      const auto put = first.Put(name, text);
      ASSERT_TRUE(put.ok()) << put.status();
      EXPECT_TRUE(put->document->has_bytes);
      EXPECT_EQ(first.Text(name).value(), text);
    }
  }
  Process second(folder());
  const LoadedDocuments loaded = second.Load();
  EXPECT_EQ(loaded.documents, texts.size());
  EXPECT_EQ(loaded.lost, 0u);
  for (const auto& [name, text] : texts) {
    EXPECT_EQ(second.Text(name).value(), text);
    const DocumentPtr document = second.store->Get({}, name).value();
    EXPECT_EQ(document->title, "The title of " + name);
    EXPECT_EQ(document->tokens.size(), text.size());
    EXPECT_TRUE(document->has_bytes);
    EXPECT_FALSE(document->transient);
    // The same text again is the same document, and no second file.
    EXPECT_FALSE(second.Put(name, text)->created);
  }
  EXPECT_THAT(Files(), SizeIs(texts.size()));
}

TEST_F(DocumentFolderTest, OnlyTheOwnerCanReadItsFiles) {
  Process process(folder());
  ASSERT_TRUE(process.StatusOfPut("a", "text").ok());
  struct stat state {};
  ASSERT_EQ(stat(folder().c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(OnlyFile().c_str(), &state), 0);
  EXPECT_EQ(state.st_mode & 0777, 0600u);
}

TEST_F(DocumentFolderTest, ASecondProcessIsRefused) {
  Process first(folder());
  const Process second(folder());
  EXPECT_EQ(second.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status.message()), HasSubstr("another daemon uses it"));
}

TEST_F(DocumentFolderTest, AnotherTokenizerMakesTheIdsAnew) {
  { ASSERT_TRUE(Process(folder()).StatusOfPut("a", "abc").ok()); }
  Process process(folder());
  process.engine.set_id_shift(1000);
  process.Load();
  std::vector<int32_t> ids;
  process.store->Get({}, "a").value()->tokens.AppendTo(ids);
  EXPECT_THAT(ids, ElementsAre(1000 + 'a', 1000 + 'b', 1000 + 'c'));
  EXPECT_EQ(process.Text("a").value(), "abc");
}

TEST_F(DocumentFolderTest, ADocumentThatIsTooLongForAnotherModelStays) {
  { ASSERT_TRUE(Process(folder()).StatusOfPut("a", TextOf(5000, 'q')).ok()); }
  Process process(folder());
  process.engine.set_max_context(100);
  EXPECT_EQ(process.Load().documents, 1u);
  EXPECT_EQ(process.Text("a").value(), TextOf(5000, 'q'));
}

TEST_F(DocumentFolderTest, TransientDocumentsAreNotWritten) {
  Process process(folder());
  ASSERT_TRUE(process.Put("a", "text", {}, /*transient=*/true).ok());
  EXPECT_THAT(Files(), IsEmpty());
  const absl::Status status = process.Text("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "DOCUMENT_NOT_KEPT");
  // Uploaded as one that stays, it is.
  ASSERT_TRUE(process.StatusOfPut("a", "text").ok());
  EXPECT_EQ(process.Text("a").value(), "text");
  EXPECT_THAT(Files(), SizeIs(1));
}

v1::UploadDocumentRequest Marked(bool keep_text) {
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_keep_text(keep_text);
  for (const int64_t byte : {0, 100, 5000}) {
    v1::DocumentMark& mark = *request.mutable_header()->add_marks();
    mark.set_byte(byte);
    mark.set_label(absl::StrCat("page \u2013 ", byte));
  }
  return request;
}

void ExpectNotes(const Process& process, const std::string& name, const std::string& text) {
  const DocumentPtr document = process.store->Get({}, name).value();
  const auto notes = process.store->NotesOf(document);
  ASSERT_NE(notes, nullptr);
  EXPECT_EQ(notes->text.Read(0, notes->text.size()), text);
  EXPECT_EQ(document->has_text, !text.empty());
  ASSERT_THAT(notes->marks, SizeIs(3));
  EXPECT_EQ(notes->marks[1].byte, 100);
  EXPECT_EQ(notes->LabelAt(4999), "page \u2013 100");
}

TEST_F(DocumentFolderTest, TextAndMarksOutliveTheProcess) {
  const std::string text = TextOf(kFileBlockBytes + 17, 'c');
  {
    Process first(folder());
    ASSERT_TRUE(first.Put("a", text, {}, false, DocumentShare(), Marked(true)).ok());
    ASSERT_TRUE(first.Put("marks-alone", text, {}, false, DocumentShare(), Marked(false)).ok());
    EXPECT_EQ(first.Text("a").value(), text);
    ExpectNotes(first, "a", text);
  }
  Process second(folder());
  EXPECT_EQ(second.Load().documents, 2u);
  ExpectNotes(second, "a", text);
  ExpectNotes(second, "marks-alone", "");
  EXPECT_EQ(second.Text("a").value(), text);
  EXPECT_EQ(second.store->Get({}, "a").value()->places.size(), (text.size() + 63) / 64);
}

TEST_F(DocumentFolderTest, TextAndMarksCanBeAddedLater) {
  const std::string text = TextOf(6000, 'c');
  {
    Process first(folder());
    ASSERT_TRUE(first.Put("a", text).ok());
    const size_t before = first.store->memory_used();
    EXPECT_EQ(first.store->NotesOf(first.store->Get({}, "a").value()), nullptr);
    const auto again = first.Put("a", text, {}, false, DocumentShare(), Marked(true));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_FALSE(again->created);
    EXPECT_GE(first.store->memory_used(), before + text.size());
    ExpectNotes(first, "a", text);
    // Those that are there stay.
    ASSERT_TRUE(first.Put("a", text).ok());
    ExpectNotes(first, "a", text);
  }
  EXPECT_THAT(Files(), SizeIs(1));
  Process second(folder());
  EXPECT_EQ(second.Load().documents, 1u);
  ExpectNotes(second, "a", text);
}

TEST_F(DocumentFolderTest, DamagedMarksLoseTheDocument) {
  {
    ASSERT_TRUE(Process(folder())
                    .Put("a", TextOf(6000, 'c'), {}, false, DocumentShare(), Marked(true))
                    .ok());
  }
  {
    std::fstream file(OnlyFile(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-20, std::ios::end);  // in the marks, before their checksum
    file.put('\xFF');
  }
  Process process(folder());
  EXPECT_EQ(process.Load().documents, 0u);
  ASSERT_THAT(process.lost, SizeIs(1));
  EXPECT_THAT(std::string(process.lost[0].second.message()), HasSubstr("checksum of its marks"));
}

TEST_F(DocumentFolderTest, WithoutAFolderTheErrorNamesTheOption) {
  DocumentStore store(DocumentLimits{1000, 100'000, 3});
  FakeEngine engine;
  Upload upload(store, engine, {});
  v1::UploadDocumentRequest part;
  part.mutable_header()->set_name("a");
  ASSERT_TRUE(upload.Accept(part).ok());
  part.mutable_chunk()->set_data("text");
  ASSERT_TRUE(upload.Accept(part).ok());
  const DocumentPtr document = upload.Finish()->document;
  EXPECT_FALSE(document->has_bytes);
  const absl::Status status = store.OpenTextOf(document, CancelFlag::Never()).status();
  EXPECT_EQ(ReasonOf(status), "DOCUMENT_NOT_KEPT");
  EXPECT_THAT(std::string(status.message()), HasSubstr("--documents"));
}

TEST_F(DocumentFolderTest, DeletedAndWithdrawnDocumentsDoNotComeBack) {
  {
    Process process(folder());
    ASSERT_TRUE(process.StatusOfPut("deleted", "one").ok());
    ASSERT_TRUE(process.StatusOfPut("kept", "two").ok());
    const auto withdrawn = process.Put("withdrawn", "three");
    const auto deleted = process.store->Delete({}, "deleted");
    ASSERT_TRUE(deleted.ok());
    EXPECT_TRUE(deleted->file.ok());
    process.store->Withdraw(withdrawn->document);
    // Uploaded again, it is another document.
    ASSERT_TRUE(process.StatusOfPut("withdrawn", "four").ok());
  }
  Process process(folder());
  process.Load();
  EXPECT_THAT(process.Names(), ElementsAre("kept", "withdrawn"));
  EXPECT_EQ(process.Text("withdrawn").value(), "four");
  EXPECT_THAT(Files(), SizeIs(2));
}

TEST_F(DocumentFolderTest, FailedUploadsLeaveNoFile) {
  Process process(folder());
  ASSERT_TRUE(process.StatusOfPut("a", "text").ok());
  EXPECT_EQ(process.StatusOfPut("a", "another").code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(process.StatusOfPut("b", "not UTF-8: \xff\xff").code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(process.StatusOfPut("c", "text").ok());  // the disk did what came before it
  EXPECT_THAT(Files(), SizeIs(2));
}

TEST_F(DocumentFolderTest, TenantsKeepTheirOwn) {
  {
    Process process(folder());
    ASSERT_TRUE(process.StatusOfPut("same", "of acme", Tenant("acme")).ok());
    ASSERT_TRUE(process.StatusOfPut("same", "of zeta", Tenant("zeta")).ok());
  }
  Process process(folder());
  process.Load();
  EXPECT_EQ(process.Text("same", Tenant("acme")).value(), "of acme");
  EXPECT_EQ(process.Text("same", Tenant("zeta")).value(), "of zeta");
  EXPECT_THAT(process.Names(), IsEmpty());
}

TEST_F(DocumentFolderTest, QuotasCountWhatWasThere) {
  { ASSERT_TRUE(Process(folder()).StatusOfPut("a", "text").ok()); }
  Process process(folder());
  process.Load();
  Caller caller;
  caller.quotas.documents = 1;
  const auto put = process.Put("b", "text", {}, false, DocumentShare(process.quotas, caller));
  EXPECT_EQ(ReasonOf(put.status()), "QUOTA_EXCEEDED");
  ASSERT_TRUE(process.store->Delete({}, "a").ok());
  EXPECT_TRUE(process.Put("b", "text", {}, false, DocumentShare(process.quotas, caller)).ok());
}

TEST_F(DocumentFolderTest, TheFolderHasALimit) {
  constexpr size_t kLimit = 20'000;
  {
    Process process(folder(), kLimit);
    ASSERT_TRUE(process.StatusOfPut("a", TextOf(10'000, 'a')).ok());
    const absl::Status full = process.StatusOfPut("b", TextOf(10'000, 'b'));
    EXPECT_EQ(ReasonOf(full), "DOCUMENT_STORE_FULL");
    EXPECT_THAT(std::string(full.message()), HasSubstr("--documents-size"));
    ASSERT_TRUE(process.store->Delete({}, "a").ok());
    EXPECT_TRUE(process.StatusOfPut("b", TextOf(10'000, 'b')).ok());
  }
  // A lower limit takes nothing away, but lets nothing in.
  Process process(folder(), 1000);
  EXPECT_EQ(process.Load().documents, 1u);
  EXPECT_GT(process.store->folder()->stats().bytes, 10'000u);
  EXPECT_EQ(ReasonOf(process.StatusOfPut("c", "c")), "DOCUMENT_STORE_FULL");
}

// Nobody can delete it over the API, but the disk holds it all the same.
TEST_F(DocumentFolderTest, DamagedFilesCountTowardsTheLimit) {
  constexpr size_t kLimit = 20'000;
  {
    Process process(folder(), kLimit);
    ASSERT_TRUE(process.StatusOfPut("a", TextOf(10'000, 'a')).ok());
  }
  std::fstream(OnlyFile(), std::ios::in | std::ios::out | std::ios::binary) << "damage";
  Process process(folder(), kLimit);
  EXPECT_EQ(process.Load().lost, 1u);
  EXPECT_EQ(process.store->folder()->stats().bytes, fs::file_size(OnlyFile()));
  EXPECT_EQ(ReasonOf(process.StatusOfPut("b", TextOf(10'000, 'b'))), "DOCUMENT_STORE_FULL");
}

TEST_F(DocumentFolderTest, ATenantHasItsShareOfTheFolder) {
  Process process(folder(), 40'000);
  process.store->SetTenants(2);
  ASSERT_TRUE(process.StatusOfPut("a", TextOf(10'000, 'a'), Tenant("acme")).ok());
  const absl::Status full = process.StatusOfPut("b", TextOf(10'000, 'b'), Tenant("acme"));
  EXPECT_THAT(std::string(full.message()), HasSubstr("the tenant's share"));
  EXPECT_TRUE(process.StatusOfPut("b", TextOf(10'000, 'b'), Tenant("zeta")).ok());
}

// More tenants than before leave less to each, but take nothing that was stored.
TEST_F(DocumentFolderTest, ASmallerShareTakesNothingAway) {
  {
    Process process(folder());
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(process.StatusOfPut(absl::StrCat(i), TextOf(5'000, 'a')).ok());
    }
  }
  auto opened = DocumentFolder::Open(folder(), {.limit_bytes = 20'000});
  ASSERT_TRUE(opened.ok()) << opened.status();
  DocumentStore store(DocumentLimits{kAmple, 200'000, 8}, *std::move(opened));
  store.SetTenants(8);
  FakeEngine engine;
  EXPECT_EQ(LoadDocuments(store, engine, std::make_shared<QuotaBook>(), CancelFlag::Never(),
                          [](const std::string& path, const absl::Status& why) {
                            ADD_FAILURE() << path << why;
                          })
                .documents,
            4u);
}

TEST_F(DocumentFolderTest, WhatFindsNoRoomStaysInItsFile) {
  {
    Process process(folder());
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(process.StatusOfPut(absl::StrCat(i), TextOf(5'000, 'a')).ok());
    }
  }
  {
    auto opened = DocumentFolder::Open(folder(), {.limit_bytes = kAmple});
    DocumentStore store(DocumentLimits{kAmple, kAmple, 2}, *std::move(opened));
    FakeEngine engine;
    std::vector<std::string> lost;
    LoadDocuments(store, engine, std::make_shared<QuotaBook>(), CancelFlag::Never(),
                  [&](const std::string& path, const absl::Status&) { lost.push_back(path); });
    EXPECT_THAT(lost, SizeIs(1));
    EXPECT_EQ(store.folder()->stats().lost, 1);
  }
  Process process(folder());
  process.Load();
  EXPECT_THAT(process.Names(), ElementsAre("0", "1", "2"));
}

TEST_F(DocumentFolderTest, TheLatestFileOfANameCounts) {
  { ASSERT_TRUE(Process(folder()).StatusOfPut("a", "old").ok()); }
  const fs::path old = OnlyFile();
  fs::rename(old, directory_.path() / "aside");
  {
    Process process(folder());
    process.Load();
    for (const char* const name : {"b", "a"}) ASSERT_TRUE(process.StatusOfPut(name, "new").ok());
    EXPECT_TRUE(process.store->Delete({}, "b").ok());
  }
  fs::rename(directory_.path() / "aside", old);
  Process process(folder());
  EXPECT_EQ(process.Load().older, 1u);
  EXPECT_EQ(process.Text("a").value(), "new");
  EXPECT_THAT(Files(), SizeIs(1));
}

TEST_F(DocumentFolderTest, DamageIsFoundWhileTheProcessRuns) {
  Process process(folder());
  const std::string text = TextOf(3 * kFileBlockBytes, 'd');
  ASSERT_TRUE(process.StatusOfPut("a", text).ok());
  ASSERT_TRUE(process.StatusOfPut("b", "whole").ok());
  std::fstream file(folder() / *Files().begin(), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kFileHeaderBytes + kFileBlockBytes + 5);
  file.put('!').flush();
  const absl::Status status = process.Text("a").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(status), "DOCUMENT_DAMAGED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("upload it again"));
  EXPECT_EQ(process.store->folder()->stats().errors, 1);
  EXPECT_EQ(process.Text("b").value(), "whole");
  ASSERT_TRUE(process.store->Delete({}, "a").ok());
  ASSERT_TRUE(process.StatusOfPut("a", text).ok());
  EXPECT_EQ(process.Text("a").value(), text);
}

TEST_F(DocumentFolderTest, WhatIsNotADocumentsFileIsLeftAlone) {
  {
    Process process(folder());
    for (const char* const name : {"a", "b", "c", "d"}) {
      ASSERT_TRUE(process.StatusOfPut(name, name).ok());
    }
  }
  std::vector<fs::path> files;
  for (const std::string& name : Files()) files.push_back(folder() / name);
  const fs::path outside = directory_.path() / "outside";
  directory_.Write("outside", "not a document");
  fs::remove(files[0]);
  fs::create_directory(files[0]);
  fs::remove(files[1]);
  fs::create_symlink(outside, files[1]);
  fs::remove(files[2]);
  ASSERT_EQ(mkfifo(files[2].c_str(), 0600), 0);
  fs::create_directory(folder() / "unfinished-folder");
  directory_.Write("documents/notes.txt", "a person's own");
  directory_.Write("documents/0000000000000001.documents", "nearly a name");
  Process process(folder());
  ASSERT_TRUE(process.status.ok()) << process.status;
  process.Load();
  EXPECT_THAT(process.Names(), ElementsAre("d"));
  EXPECT_THAT(process.lost, SizeIs(3));
  EXPECT_TRUE(process.StatusOfPut("e", "e").ok());
  EXPECT_TRUE(fs::exists(outside));
  EXPECT_TRUE(fs::exists(folder() / "notes.txt"));
  EXPECT_TRUE(fs::is_directory(files[0]));
}

TEST_F(DocumentFolderTest, ANumberThatNoDaemonReachesIsRefusedByName) {
  fs::create_directory(folder());
  fs::permissions(folder(), fs::perms::owner_all);
  directory_.Write("documents/ffffffffffffffff.document", "");
  const Process process(folder());
  EXPECT_EQ(process.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(process.status.message()), HasSubstr("ffffffffffffffff.document"));
}

// Whoever wrote it: lists and prompts could not be made of it.
TEST_F(DocumentFolderTest, ATitleThatIsNoTextIsDamage) {
  FileFacts facts{.tenant = {},
                  .name = "a",
                  .title = "caf\xc3\xa9",
                  .size_bytes = 1,
                  .sha256 = std::string(64, '0'),
                  .stored_at = 1};
  std::array<std::byte, kFileHeaderBytes> header;
  WriteFileHeader(facts, header);
  ASSERT_TRUE(ReadFileHeader(header).ok());
  facts.title = "caf\xe9";
  WriteFileHeader(facts, header);
  EXPECT_TRUE(absl::IsDataLoss(ReadFileHeader(header).status()));
}

}  // namespace
}  // namespace annulus::server
