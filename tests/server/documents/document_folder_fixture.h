#ifndef ANNULUS_TESTS_SERVER_DOCUMENTS_DOCUMENT_FOLDER_FIXTURE_H_
#define ANNULUS_TESTS_SERVER_DOCUMENTS_DOCUMENT_FOLDER_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/documents/document_folder.h"
#include "server/documents/load_documents.h"
#include "server/documents/upload.h"
#include "tests/server/fake_engine.h"
#include "tests/server/test_server.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {

inline TenantId Tenant(const std::string& name) { return *TenantId::FromName(name); }

inline std::string ReasonOf(const absl::Status& status) {
  return Details(ToGrpcStatus(status)).reason;
}

inline std::string TextOf(size_t bytes, char first) {
  std::string text(bytes, first);
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * 7 + first) % 26);
  return text;
}

// One process's store. Destroying it ends the process, as far as the folder can see.
struct Process {
  static constexpr size_t kFolderBytes = size_t{64} << 20;

  explicit Process(const std::filesystem::path& path, size_t folder_bytes = kFolderBytes,
                   DiskCalls& calls = DiskCalls::System(),
                   std::chrono::milliseconds most_call = std::chrono::seconds(10)) {
    engine.set_max_context(int64_t{1} << 30);
    auto opened = DocumentFolder::Open(path, {folder_bytes, most_call}, calls);
    status = opened.status();
    if (opened.ok()) {
      store = std::make_unique<DocumentStore>(
          DocumentLimits{size_t{8} << 20, size_t{64} << 20, 1000}, *std::move(opened));
    }
  }

  LoadedDocuments Load() {
    return LoadDocuments(*store, engine, quotas, CancelFlag::Never(),
                         [&](const std::string& file, const absl::Status& why) {
                           lost.emplace_back(std::filesystem::path(file).filename(), why);
                         });
  }

  absl::StatusOr<Upload::Result> Put(const std::string& name, const std::string& text,
                                     const TenantId& tenant = {}, bool transient = false,
                                     DocumentShare share = DocumentShare(),
                                     v1::UploadDocumentRequest header = {}) {
    Upload upload(*store, engine, tenant, CancelFlag::Never(), std::move(share));
    header.mutable_header()->set_name(name);
    header.mutable_header()->set_title("The title of " + name);
    header.mutable_header()->set_transient(transient);
    absl::Status accepted = upload.Accept(header);
    for (size_t at = 0; at < text.size() && accepted.ok(); at += 100'000) {
      v1::UploadDocumentRequest chunk;
      chunk.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      chunk.mutable_chunk()->set_data(text.substr(at, 100'000));
      accepted = upload.Accept(chunk);
    }
    if (!accepted.ok()) return accepted;
    return upload.Finish();
  }
  absl::Status StatusOfPut(const std::string& name, const std::string& text,
                           const TenantId& tenant = {}) {
    return Put(name, text, tenant).status();
  }

  absl::StatusOr<std::string> Text(const std::string& name, const TenantId& tenant = {}) {
    absl::StatusOr<DocumentPtr> document = store->Get(tenant, name);
    if (!document.ok()) return document.status();
    absl::StatusOr<OpenTextPtr> open = store->OpenTextOf(*document, CancelFlag::Never());
    if (!open.ok()) return open.status();
    std::string text;
    while (true) {
      absl::StatusOr<std::string> block = store->folder()->ReadNext(*open, CancelFlag::Never());
      if (!block.ok()) return block.status();
      if (block->empty()) return text;
      text += *block;
    }
  }

  std::vector<std::string> Names(const TenantId& tenant = {}) {
    std::vector<std::string> names;
    for (const auto& document : store->List(tenant, "", 100)) names.push_back(document->name);
    return names;
  }

  FakeEngine engine;
  std::shared_ptr<QuotaBook> quotas = std::make_shared<QuotaBook>();
  absl::Status status;
  std::unique_ptr<DocumentStore> store;
  std::vector<std::pair<std::string, absl::Status>> lost;
};

class DocumentFolderTest : public ::testing::Test {
 protected:
  std::filesystem::path folder() const { return directory_.path() / "documents"; }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(folder())) {
      if (file.path().filename() != "lock") files.insert(file.path().filename());
    }
    return files;
  }
  std::filesystem::path OnlyFile() const {
    EXPECT_EQ(Files().size(), 1u);
    return folder() / *Files().begin();
  }

  testing::TempDirectory directory_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_DOCUMENTS_DOCUMENT_FOLDER_FIXTURE_H_
