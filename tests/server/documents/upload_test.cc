// Documents and uploads without gRPC.

#include "server/documents/upload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/errors.h"
#include "tests/server/fake_engine.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAbcSha256[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

v1::UploadDocumentRequest Header(const std::string& name) {
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_name(name);
  return request;
}

v1::UploadDocumentRequest Chunk(int64_t offset, const std::string& data) {
  v1::UploadDocumentRequest request;
  request.mutable_chunk()->set_offset(offset);
  request.mutable_chunk()->set_data(data);
  return request;
}

std::string Reason(const absl::Status& status) { return Details(ToGrpcStatus(status)).reason; }

class UploadTest : public ::testing::Test {
 protected:
  absl::StatusOr<Upload::Result> Store(const std::string& name, const std::string& text) {
    Upload upload(store_, engine_, {});
    ExpectOk(upload.Accept(Header(name)));
    const absl::Status status = upload.Accept(Chunk(0, text));
    if (!status.ok()) return status;
    return upload.Finish();
  }
  static void ExpectOk(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

  FakeEngine engine_;
  DocumentStore store_{DocumentLimits{3000, 20'000, 3}};
};

TEST_F(UploadTest, StoresTokensHashAndSize) {
  Upload upload(store_, engine_, {});
  auto header = Header("a.txt");
  header.mutable_header()->set_total_bytes(3);
  header.mutable_header()->set_sha256(kAbcSha256);
  ExpectOk(upload.Accept(header));
  ExpectOk(upload.Accept(Chunk(0, "a")));
  ExpectOk(upload.Accept(Chunk(1, "bc")));
  const auto result = upload.Finish();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->created);
  const DocumentPtr document = store_.Get({}, "a.txt").value();
  std::vector<int32_t> tokens;
  document->tokens.AppendTo(tokens);
  EXPECT_EQ(tokens, (std::vector<int32_t>{'a', 'b', 'c'}));
  EXPECT_EQ(document->sha256, kAbcSha256);
  EXPECT_EQ(document->size_bytes, 3u);
}

TEST_F(UploadTest, TheSameTextAgainChangesNothing) {
  ASSERT_TRUE(Store("a", "abc").ok());
  const size_t memory = store_.memory_used();
  const auto again = Store("a", "abc");
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->created);
  EXPECT_EQ(store_.memory_used(), memory);
  const auto other = Store("a", "abd");
  EXPECT_EQ(other.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Reason(other.status()), "DOCUMENT_EXISTS");
}

TEST_F(UploadTest, ChunksMustFollowEachOther) {
  for (const int64_t offset :
       {int64_t{0}, int64_t{2}, int64_t{4}, int64_t{-1}, INT64_MAX, INT64_MIN}) {
    Upload upload(store_, engine_, {});
    ExpectOk(upload.Accept(Header("a")));
    ExpectOk(upload.Accept(Chunk(0, "abc")));
    const absl::Status status = upload.Accept(Chunk(offset, "def"));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << offset;
    EXPECT_EQ(Reason(status), "DOCUMENT_OUT_OF_ORDER");
    EXPECT_EQ(Details(ToGrpcStatus(status)).metadata.at("expected_offset"), "3");
  }
}

TEST_F(UploadTest, HeadersAreChecked) {
  Upload no_header(store_, engine_, {});
  EXPECT_EQ(Reason(no_header.Accept(Chunk(0, "abc"))), "DOCUMENT_INCOMPLETE");
  Upload nothing(store_, engine_, {});
  EXPECT_EQ(Reason(nothing.Accept({})), "INVALID_FIELD");
  EXPECT_EQ(Reason(Upload(store_, engine_, {}).Finish().status()), "DOCUMENT_INCOMPLETE");

  Upload two_headers(store_, engine_, {});
  ExpectOk(two_headers.Accept(Header("a")));
  EXPECT_EQ(Reason(two_headers.Accept(Header("a"))), "INVALID_FIELD");

  auto bad_hash = Header("a");
  bad_hash.mutable_header()->set_sha256(std::string(64, 'G'));
  EXPECT_EQ(Details(ToGrpcStatus(Upload(store_, engine_, {}).Accept(bad_hash))).field,
            "header.sha256");
  for (const char* const title : {"caf\xe9", "\xff", "cut \xe2\x82"}) {
    auto bad_title = Header("a");
    bad_title.mutable_header()->set_title(title);
    EXPECT_EQ(Details(ToGrpcStatus(Upload(store_, engine_, {}).Accept(bad_title))).field,
              "header.title");
  }
  auto bad_total = Header("a");
  for (const int64_t total : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    bad_total.mutable_header()->set_total_bytes(total);
    EXPECT_EQ(Details(ToGrpcStatus(Upload(store_, engine_, {}).Accept(bad_total))).field,
              "header.total_bytes");
  }
}

TEST_F(UploadTest, NamesAreChecked) {
  for (const std::string& good :
       {std::string("a"), std::string("A-b_c.9"), std::string(128, 'x')}) {
    EXPECT_TRUE(CheckDocumentName("name", good).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("."), std::string(".."), std::string("../a"), std::string("a/b"),
        std::string("a..b"), std::string("-a"), std::string("a b"), std::string("\xc3\xa4"),
        std::string("a\0b", 3), std::string(129, 'x')}) {
    Upload upload(store_, engine_, {});
    const absl::Status status = upload.Accept(Header(bad));
    EXPECT_EQ(Details(ToGrpcStatus(status)).field, "header.name") << bad;
  }
}

TEST_F(UploadTest, LengthAndHashAreCheckedAtTheEnd) {
  auto header = Header("a");
  header.mutable_header()->set_total_bytes(3);
  Upload few(store_, engine_, {});
  ExpectOk(few.Accept(header));
  ExpectOk(few.Accept(Chunk(0, "ab")));
  EXPECT_EQ(Reason(few.Finish().status()), "DOCUMENT_INCOMPLETE");
  Upload many(store_, engine_, {});
  ExpectOk(many.Accept(header));
  EXPECT_EQ(Details(ToGrpcStatus(many.Accept(Chunk(0, "abcd")))).field, "chunk.data");

  Upload wrong(store_, engine_, {});
  header.mutable_header()->set_sha256(kAbcSha256);
  ExpectOk(wrong.Accept(header));
  ExpectOk(wrong.Accept(Chunk(0, "abd")));
  EXPECT_EQ(Reason(wrong.Finish().status()), "DOCUMENT_HASH_MISMATCH");
  EXPECT_EQ(store_.count(), 0);
}

TEST_F(UploadTest, EmptyAndBadTextIsRefused) {
  Upload empty(store_, engine_, {});
  ExpectOk(empty.Accept(Header("a")));
  EXPECT_EQ(Details(ToGrpcStatus(empty.Accept(Chunk(0, "")))).field, "chunk.data");
  Upload no_chunk(store_, engine_, {});
  ExpectOk(no_chunk.Accept(Header("a")));
  EXPECT_EQ(Reason(no_chunk.Finish().status()), "DOCUMENT_INCOMPLETE");
  const auto bad = Store("a", "abc\xff");
  EXPECT_EQ(Details(ToGrpcStatus(bad.status())).field, "chunk.data");
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("bad byte at offset 3"));
}

TEST_F(UploadTest, ACharacterMayBeSplitBetweenChunks) {
  Upload upload(store_, engine_, {});
  ExpectOk(upload.Accept(Header("a")));
  ExpectOk(upload.Accept(Chunk(0, "\xc3")));
  ExpectOk(upload.Accept(Chunk(1, "\xa4")));
  EXPECT_TRUE(upload.Finish().ok());
}

TEST_F(UploadTest, TooLongIsRefusedEarlyWithTheNumbers) {
  auto header = Header("a");
  for (const int64_t total : {int64_t{3001}, INT64_MAX}) {
    header.mutable_header()->set_total_bytes(total);
    const absl::Status status = Upload(store_, engine_, {}).Accept(header);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    const ErrorDetails details = Details(ToGrpcStatus(status));
    EXPECT_EQ(details.reason, "DOCUMENT_TOO_LARGE");
    EXPECT_EQ(details.metadata.at("needed"), std::to_string(total));
    EXPECT_EQ(details.metadata.at("available"), "3000");
  }
  Upload unannounced(store_, engine_, {});
  ExpectOk(unannounced.Accept(Header("a")));
  ExpectOk(unannounced.Accept(Chunk(0, std::string(2000, 'x'))));
  EXPECT_EQ(Reason(unannounced.Accept(Chunk(2000, std::string(2000, 'x')))), "DOCUMENT_TOO_LARGE");
}

TEST_F(UploadTest, LongerThanTheContextIsRefusedInTokens) {
  engine_.set_max_context(100);
  const auto result = Store("a", std::string(100, 'x'));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Reason(result.status()), "CONTEXT_TOO_LONG");
  EXPECT_TRUE(Store("a", std::string(99, 'x')).ok());
}

TEST_F(UploadTest, TheContextIsCheckedWhileTheTextArrives) {
  engine_.set_max_context(100);
  auto header = Header("a");
  header.mutable_header()->set_total_bytes(2500);
  Upload upload(store_, engine_, {});
  ExpectOk(upload.Accept(header));
  ExpectOk(upload.Accept(Chunk(0, std::string(60, 'x'))));
  const absl::Status status = upload.Accept(Chunk(60, std::string(60, 'x')));
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("the first 120 of 2500 bytes of the document are 120 tokens, and the "
                "model's context holds 100, including question and answer; split the document"));
  const ErrorDetails details = Details(ToGrpcStatus(status));
  EXPECT_EQ(details.reason, "CONTEXT_TOO_LONG");
  EXPECT_EQ(details.metadata.at("needed"), "121");
  EXPECT_EQ(details.metadata.at("available"), "100");
}

// What a document takes once it is stored.
size_t MemoryOf(size_t tokens) {
  const size_t blocks = (tokens + TokenList::kBlockIds - 1) / TokenList::kBlockIds;
  const size_t places = (tokens + kPlaceTokens - 1) / kPlaceTokens;
  return tokens * sizeof(int32_t) + blocks * TokenList::kBlockOverhead +
         places * sizeof(TokenPlace) + DocumentStore::kMemoryPerDocument;
}

TEST_F(UploadTest, TheStoreIsBoundedByMemory) {
  ASSERT_TRUE(Store("a", std::string(3000, 'x')).ok());
  EXPECT_EQ(store_.memory_used(), MemoryOf(3000));
  Upload second(store_, engine_, {});
  ExpectOk(second.Accept(Header("b")));
  const absl::Status full = second.Accept(Chunk(0, std::string(3000, 'y')));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  const ErrorDetails details = Details(ToGrpcStatus(full));
  EXPECT_EQ(details.reason, "DOCUMENT_STORE_FULL");
  EXPECT_GT(std::stoul(details.metadata.at("needed")), 20'000 - MemoryOf(3000));
  EXPECT_LT(std::stoul(details.metadata.at("needed")), 20'000u);
  EXPECT_EQ(details.metadata.at("limit"), "20000");
  // How much is free would tell a tenant what the others have.
  EXPECT_THAT(std::string(full.message()), Not(HasSubstr(std::to_string(20'000 - MemoryOf(3000)))));
  EXPECT_EQ(details.metadata.count("available"), 0u);
}

TEST_F(UploadTest, WhatTheTokenizerHoldsBackCounts) {
  engine_.set_text_memory_bytes(14'000);
  Upload upload(store_, engine_, {});
  ExpectOk(upload.Accept(Header("a")));
  ExpectOk(upload.Accept(Chunk(0, std::string(100, 'x'))));
  EXPECT_GE(store_.memory_used(), 100u * 4 + 14'000 + 1024);
  const absl::Status full = upload.Accept(Chunk(100, std::string(1000, 'x')));
  EXPECT_EQ(Reason(full), "DOCUMENT_STORE_FULL");
}

// While a text arrives it takes little more than at its end, so uploads under way do not fill a
// store in which their documents have room. The memory is what a tokenizer counts that may have to
// hold all of its latest part back.
TEST_F(UploadTest, UploadsThatFitTogetherDoNotRefuseEachOther) {
  constexpr size_t kUploads = 8;
  constexpr size_t kBytes = 200'000;
  engine_.set_text_memory_per_byte(36);
  engine_.set_max_context(2 * kBytes);
  DocumentStore store(DocumentLimits{kBytes, kUploads * (kBytes * 4 + 100'000), kUploads});
  std::vector<std::unique_ptr<Upload>> uploads;
  for (size_t i = 0; i < kUploads; ++i) {
    uploads.push_back(std::make_unique<Upload>(store, engine_, TenantId()));
    ExpectOk(uploads.back()->Accept(Header(std::to_string(i))));
  }
  for (const auto& upload : uploads) ExpectOk(upload->Accept(Chunk(0, std::string(kBytes, 'x'))));
  for (const auto& upload : uploads) ExpectOk(upload->Finish().status());
  uploads.clear();
  EXPECT_EQ(store.memory_used(), kUploads * MemoryOf(kBytes));
}

TEST_F(UploadTest, ARetryHelpsIfUploadsTakeTheRoom) {
  Upload first(store_, engine_, {});
  ExpectOk(first.Accept(Header("a")));
  ExpectOk(first.Accept(Chunk(0, std::string(2000, 'x'))));
  Upload second(store_, engine_, {});
  ExpectOk(second.Accept(Header("b")));
  const ErrorDetails details =
      Details(ToGrpcStatus(second.Accept(Chunk(0, std::string(3000, 'y')))));
  EXPECT_EQ(details.reason, "DOCUMENT_STORE_FULL");
  EXPECT_EQ(details.retry_ms, 1000);
}

TEST_F(UploadTest, TheStoreIsBoundedByCount) {
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(Store(name, name).ok());
  EXPECT_EQ(Reason(Upload(store_, engine_, {}).Accept(Header("d"))), "DOCUMENT_STORE_FULL");
  EXPECT_TRUE(store_.Delete({}, "b").ok());
  EXPECT_TRUE(Store("d", "d").ok());
}

TEST_F(UploadTest, MemoryComesBack) {
  {
    Upload abandoned(store_, engine_, {});
    ExpectOk(abandoned.Accept(Header("a")));
    ExpectOk(abandoned.Accept(Chunk(0, std::string(1000, 'x'))));
    EXPECT_GE(store_.memory_used(), MemoryOf(1000));
  }
  EXPECT_EQ(store_.memory_used(), 0u);
  ASSERT_TRUE(Store("a", "abc").ok());
  {
    const DocumentPtr held = store_.Get({}, "a").value();
    ASSERT_TRUE(store_.Delete({}, "a").ok());
    EXPECT_GT(store_.memory_used(), 0u);  // a request still reads it
    EXPECT_EQ(held->tokens.size(), 3u);
  }
  EXPECT_EQ(store_.memory_used(), 0u);
}

TEST_F(UploadTest, WithdrawTakesOnlyItsOwn) {
  const DocumentPtr first = Store("a", "abc")->document;
  ASSERT_TRUE(store_.Delete({}, "a").ok());
  ASSERT_TRUE(Store("a", "xyz").ok());
  store_.Withdraw(first);
  EXPECT_TRUE(store_.Get({}, "a").ok());
}

TEST_F(UploadTest, ListsByName) {
  for (const char* name : {"c", "a", "b"}) ASSERT_TRUE(Store(name, "x").ok());
  const auto names = [](const std::vector<DocumentPtr>& documents) {
    std::string all;
    for (const DocumentPtr& document : documents) all += document->name;
    return all;
  };
  EXPECT_EQ(names(store_.List({}, "", 10)), "abc");
  EXPECT_EQ(names(store_.List({}, "a", 1)), "b");
  EXPECT_EQ(names(store_.List({}, "c", 10)), "");
}

v1::UploadDocumentRequest MarkedHeader(const std::vector<std::pair<int64_t, std::string>>& marks) {
  v1::UploadDocumentRequest request = Header("a");
  for (const auto& [byte, label] : marks) {
    v1::DocumentMark& mark = *request.mutable_header()->add_marks();
    mark.set_byte(byte);
    mark.set_label(label);
  }
  return request;
}

TEST_F(UploadTest, KeepsTextAndMarks) {
  Upload upload(store_, engine_, {});
  auto header = MarkedHeader({{0, "one"}, {2, "two"}, {2, "three"}, {5, "end"}});
  header.mutable_header()->set_keep_text(true);
  ExpectOk(upload.Accept(header));
  ExpectOk(upload.Accept(Chunk(0, "ab")));
  ExpectOk(upload.Accept(Chunk(2, "cde")));
  const DocumentPtr document = upload.Finish()->document;
  const auto notes = store_.NotesOf(document);
  ASSERT_NE(notes, nullptr);
  EXPECT_EQ(notes->text.Read(1, 4), "bcd");
  EXPECT_EQ(notes->text.Read(0, 100), "abcde");
  EXPECT_TRUE(document->has_text);
  EXPECT_EQ(notes->LabelAt(0), "one");
  EXPECT_EQ(notes->LabelAt(1), "one");
  EXPECT_EQ(notes->LabelAt(2), "three");
  EXPECT_EQ(notes->LabelAt(9), "end");
  EXPECT_EQ(document->characters, 5);
  EXPECT_EQ(document->places.size(), 1u);
}

TEST_F(UploadTest, KeptTextCountsAgainstTheMemory) {
  const std::string text(2500, 'x');
  const auto plain = Store("plain", text);
  ASSERT_TRUE(plain.ok()) << plain.status();
  const size_t without = store_.memory_used();
  Upload upload(store_, engine_, {});
  auto header = Header("kept");
  header.mutable_header()->set_keep_text(true);
  ExpectOk(upload.Accept(header));
  // Its ids alone would have room.
  const absl::Status status = upload.Accept(Chunk(0, text));
  EXPECT_GT(2 * without + text.size(), 20'000u);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << without;
}

TEST_F(UploadTest, RefusesMarksThatCannotBe) {
  const auto refusal = [&](const v1::UploadDocumentRequest& header) {
    Upload upload(store_, engine_, {});
    const absl::Status status = upload.Accept(header);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refusal(MarkedHeader({{5, "a"}, {4, "b"}})),
              HasSubstr("4 is not allowed: at least 5, where the mark before it stands"));
  EXPECT_THAT(refusal(MarkedHeader({{-1, "a"}})), HasSubstr("-1 is not allowed: at least 0"));
  EXPECT_THAT(refusal(MarkedHeader({{0, ""}})), HasSubstr("has 0 bytes; allowed are 1 to 256"));
  EXPECT_THAT(refusal(MarkedHeader({{0, std::string(257, 'x')}})), HasSubstr("has 257 bytes"));
  EXPECT_THAT(refusal(MarkedHeader(std::vector<std::pair<int64_t, std::string>>(16'385, {0, "x"}))),
              HasSubstr("16385 marks; at most 16384"));
  // Told before the text is sent if its length is known, else at its end.
  auto header = MarkedHeader({{4, "a"}});
  header.mutable_header()->set_total_bytes(3);
  EXPECT_THAT(refusal(header), HasSubstr("behind the end of the document, which has 3 bytes"));
  Upload upload(store_, engine_, {});
  ExpectOk(upload.Accept(MarkedHeader({{4, "a"}})));
  ExpectOk(upload.Accept(Chunk(0, "abc")));
  EXPECT_THAT(std::string(upload.Finish().status().message()),
              HasSubstr("stands at byte 4, behind the end"));
}

}  // namespace
}  // namespace annulus::server
