// Which documents make room for others, and whose.

#include "server/documents/document_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/documents/upload.h"
#include "tests/server/fake_engine.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr size_t kTokens = 1000;  // of each document
constexpr size_t kEach = kTokens * sizeof(int32_t) + TokenList::kBlockOverhead +
                         (kTokens + kPlaceTokens - 1) / kPlaceTokens * sizeof(TokenPlace) +
                         DocumentStore::kMemoryPerDocument;
// What an upload takes besides, at most.
constexpr size_t kSlack = 16 << 10;

class DocumentStoreTest : public ::testing::Test {
 protected:
  static TenantId Tenant(const std::string& name) { return *TenantId::FromName(name); }

  absl::Status Put(const TenantId& tenant, const std::string& name, bool transient,
                   DocumentShare share = DocumentShare()) {
    Upload upload(*store_, engine_, tenant, CancelFlag::Never(), std::move(share));
    v1::UploadDocumentRequest header;
    header.mutable_header()->set_name(name);
    header.mutable_header()->set_transient(transient);
    absl::Status status = upload.Accept(header);
    v1::UploadDocumentRequest chunk;
    chunk.mutable_chunk()->set_data(Text(name));
    if (status.ok()) status = upload.Accept(chunk);
    return status.ok() ? upload.Finish().status() : status;
  }
  absl::Status Keep(const TenantId& tenant, const std::string& name) {
    return Put(tenant, name, /*transient=*/false);
  }
  absl::Status Lend(const TenantId& tenant, const std::string& name) {
    return Put(tenant, name, /*transient=*/true);
  }
  static std::string Text(const std::string& name) {
    return name + std::string(kTokens - name.size(), 'x');
  }

  std::vector<std::string> Names(const TenantId& tenant) {
    std::vector<std::string> names;
    for (const DocumentPtr& document : store_->List(tenant, "", 1000)) {
      names.push_back(document->name);
    }
    return names;
  }
  void SetLimits(size_t memory, int count, size_t tenants = 1) {
    store_.emplace(DocumentLimits{kTokens, memory, count});
    store_->SetTenants(tenants);
  }

  FakeEngine engine_;
  std::optional<DocumentStore> store_;
  const TenantId one_;
};

TEST_F(DocumentStoreTest, TheOneThatWasNotAskedForTheLongestGoesFirst) {
  SetLimits(1 << 20, 3);
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(Lend(one_, name).ok());
  ASSERT_TRUE(store_->Get(one_, "a").ok());
  ASSERT_TRUE(Lend(one_, "d").ok());
  EXPECT_THAT(Names(one_), ElementsAre("a", "c", "d"));
  ASSERT_TRUE(Keep(one_, "e").ok());
  EXPECT_THAT(Names(one_), ElementsAre("a", "d", "e"));
  EXPECT_EQ(store_->evictions(), 2u);
}

TEST_F(DocumentStoreTest, MemoryIsFreedAsNumbersAre) {
  SetLimits(3 * kEach + kSlack, 1000);
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "h"}) {
    ASSERT_TRUE(Lend(one_, name).ok());
  }
  const std::vector<std::string> names = Names(one_);
  EXPECT_GE(names.size(), 3u);
  EXPECT_EQ(names.back(), "h");
  EXPECT_EQ(store_->memory_used(), names.size() * kEach);
}

TEST_F(DocumentStoreTest, KeptOnesAndThoseThatRequestsReadStay) {
  SetLimits(1 << 20, 2);
  ASSERT_TRUE(Keep(one_, "kept").ok());
  ASSERT_TRUE(Lend(one_, "read").ok());
  {
    const DocumentPtr read = *store_->Get(one_, "read");
    const absl::Status full = Lend(one_, "a");
    EXPECT_EQ(Details(ToGrpcStatus(full)).reason, "DOCUMENT_STORE_FULL");
    EXPECT_THAT(Names(one_), ElementsAre("kept", "read"));
  }
  ASSERT_TRUE(Lend(one_, "a").ok());
  EXPECT_THAT(Names(one_), ElementsAre("a", "kept"));
}

TEST_F(DocumentStoreTest, AnUploadThatStaysKeepsATransientDocument) {
  SetLimits(1 << 20, 2);
  ASSERT_TRUE(Lend(one_, "a").ok());
  ASSERT_TRUE(Keep(one_, "a").ok());
  EXPECT_FALSE((*store_->Get(one_, "a"))->transient);
  ASSERT_TRUE(Lend(one_, "a").ok()) << "and no later one changes that";
  EXPECT_FALSE((*store_->Get(one_, "a"))->transient);
  ASSERT_TRUE(Lend(one_, "b").ok());
  ASSERT_TRUE(Lend(one_, "c").ok());
  EXPECT_THAT(Names(one_), ElementsAre("a", "c"));
  ASSERT_TRUE(store_->Delete(one_, "a").ok());
  ASSERT_TRUE(store_->Delete(one_, "c").ok());
  EXPECT_EQ(store_->memory_used(), 0u);
}

TEST_F(DocumentStoreTest, AnUploadIsTakenBackIfNobodyElseWantsIt) {
  SetLimits(1 << 20, 10);
  for (const char* name : {"alone", "asked", "again", "read"}) ASSERT_TRUE(Lend(one_, name).ok());
  ASSERT_TRUE(Keep(one_, "kept").ok());
  ASSERT_TRUE(store_->Promise(one_, "asked").ok());
  ASSERT_TRUE(Lend(one_, "again").ok());
  {
    const DocumentPtr read = *store_->Get(one_, "read");
    for (const std::string& name : Names(one_)) {
      EXPECT_TRUE(store_->DeleteIfUnused(one_, name).ok()) << name;
    }
  }
  EXPECT_THAT(Names(one_), ElementsAre("again", "asked", "kept", "read"));
  EXPECT_TRUE(absl::IsNotFound(store_->DeleteIfUnused(one_, "alone")));
}

TEST_F(DocumentStoreTest, RoomComesFromTheTenantThatHoldsMost) {
  const TenantId a = Tenant("a"), b = Tenant("b"), c = Tenant("c");
  SetLimits(1 << 20, 6, 3);
  for (const char* name : {"1", "2", "3", "4", "5"}) ASSERT_TRUE(Lend(a, name).ok());
  ASSERT_TRUE(Lend(b, "1").ok());
  ASSERT_TRUE(Lend(b, "2").ok());
  ASSERT_TRUE(Lend(c, "1").ok());
  EXPECT_THAT(Names(a), ElementsAre("3", "4", "5"));
  // Its own are the oldest to go once it holds as many as anybody.
  ASSERT_TRUE(Lend(c, "2").ok());
  ASSERT_TRUE(Lend(c, "3").ok());
  EXPECT_THAT(Names(a), ElementsAre("4", "5"));
  EXPECT_THAT(Names(b), ElementsAre("1", "2"));
  EXPECT_THAT(Names(c), ElementsAre("2", "3"));
}

TEST_F(DocumentStoreTest, WhatATenantKeepsLeavesTheOthersTheirShare) {
  const TenantId greedy = Tenant("greedy"), modest = Tenant("modest");
  SetLimits(1 << 20, 10, 2);
  absl::Status full;
  for (int i = 0; full.ok() && i < 20; ++i) full = Keep(greedy, absl::StrCat("k", i));
  EXPECT_EQ(Details(ToGrpcStatus(full)).reason, "DOCUMENT_STORE_FULL");
  EXPECT_THAT(std::string(full.message()), HasSubstr("its share of the 10 for 2 tenants is 5"));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(Lend(greedy, absl::StrCat("t", i)).ok());
  EXPECT_EQ(Names(greedy).size(), 10u) << "what is free may be used";
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Keep(modest, absl::StrCat("k", i)).ok()) << i;
  EXPECT_EQ(Names(greedy).size(), 5u);
}

TEST_F(DocumentStoreTest, SharesOfMemoryCountUploadsToo) {
  const TenantId greedy = Tenant("greedy"), modest = Tenant("modest");
  SetLimits(2 * (4 * kEach + kSlack), 1000, 2);
  absl::Status full;
  for (int i = 0; full.ok() && i < 40; ++i) full = Keep(greedy, absl::StrCat("k", i));
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("an equal share for each of 2 tenants; delete documents"));
  EXPECT_LE(store_->memory_used(), 4 * kEach + kSlack);
  for (int i = 0; i < 40; ++i) {
    const absl::Status lent = Lend(greedy, absl::StrCat("t", i));
    ASSERT_FALSE(lent.ok()) << "an upload needs the share that the kept ones have used up";
  }
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Keep(modest, absl::StrCat("k", i)).ok()) << i;
}

// The tenant cannot know which of its transient documents are in the way of its quota.
TEST_F(DocumentStoreTest, TransientOnesMakeRoomInTheQuota) {
  SetLimits(1 << 20, 10);
  const auto quotas = std::make_shared<QuotaBook>();
  Caller caller;
  caller.quotas.documents = 2;
  const auto put = [&](const std::string& name, bool transient) {
    return Put(one_, name, transient, DocumentShare(quotas, caller));
  };
  ASSERT_TRUE(put("a", true).ok());
  ASSERT_TRUE(put("b", true).ok());
  ASSERT_TRUE(put("c", false).ok());
  ASSERT_TRUE(put("d", false).ok());
  EXPECT_THAT(Names(one_), ElementsAre("c", "d"));
  EXPECT_EQ(quotas->refusals(Quota::kDocuments), 0u);
  EXPECT_EQ(Details(ToGrpcStatus(put("e", true))).reason, "QUOTA_EXCEEDED");
  EXPECT_EQ(quotas->refusals(Quota::kDocuments), 1u);
  EXPECT_THAT(Names(Tenant("other")), IsEmpty());
}

}  // namespace
}  // namespace annulus::server
