// Documents that stay: pins, their quota, times to live, and what goes when one is forgotten.
#include "engine/pages/pinned_documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error_payloads.h"
#include "tests/engine/pages/page_tier_fixture.h"

namespace annulus {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::Eventually;  // what was ordered is done before the next step
using ::testing::HasSubstr;

// The pure part: 100 pages of 4 tokens, half of them for pins, a quarter for those of one tenant.
class PinnedDocumentsTest : public ::testing::Test {
 protected:
  static constexpr int32_t kPage = 4;

  ~PinnedDocumentsTest() override {
    pins_.Clear();
    index_.Clear();
  }

  // A prompt of so many pages that no other begins with, known to the index.
  PrefixIndex::Hit Known(int pages, const TenantId& tenant) {
    const PageOwner owner = OwnerOfRequest(next_++);
    book_.Open(owner, tenant);
    std::vector<int32_t> tokens(static_cast<size_t>(pages * kPage));
    std::iota(tokens.begin(), tokens.end(), static_cast<int32_t>(owner.id) * 1000);
    std::vector<PageId> ids;
    for (int i = 0; i < pages; ++i) {
      const int32_t rank = i % 2;
      book_.Reserve(owner, rank, 1);
      ids.push_back({rank, book_.reserve(owner, rank).back()});
      book_.BeginWrite(owner, ids.back(), 0);
      book_.Complete(ids.back());
    }
    index_.Insert(tenant.name(), tokens, std::nullopt,
                  [&](int, int32_t first) { return ids.at(first / kPage); });
    book_.Release(owner);
    return *index_.Find(tenant.name(), tokens);
  }

  int64_t Free() const { return book_.free_count(0) + book_.free_count(1); }
  int64_t Pinned() const { return book_.pinned_count(0) + book_.pinned_count(1); }
  int64_t Unheld() const { return book_.unheld_count(0) + book_.unheld_count(1); }

  const TenantId us_ = *TenantId::FromName("us");
  const TenantId them_ = *TenantId::FromName("them");
  PageBook book_{{50, 50}, {0}};
  PrefixIndex index_{kPage, {0}, book_};
  PinnedDocuments pins_{{0.5, 0.25, kPage, {0}}, book_, index_};
  RequestId next_ = 1;
};

TEST_F(PinnedDocumentsTest, PinnedPagesAreNobodysToTake) {
  const PrefixIndex::Hit hit = Known(10, us_);
  ASSERT_TRUE(pins_.Pin(us_, {{1, 0}}, hit).ok());
  ASSERT_TRUE(pins_.Pin(us_, {{1, 0}}, hit).ok()) << "once more is nothing new";
  EXPECT_TRUE(book_.IsPinned(hit.groups[0][0].id));
  ASSERT_TRUE(pins_.Pin(us_, {{3, 0}}, hit).ok());
  EXPECT_EQ(Pinned(), 10) << "each counts once";
  pins_.Unpin(3);
  EXPECT_EQ(Pinned(), 10);
  Known(20, us_);
  EXPECT_EQ(Unheld(), 20);
  EXPECT_FALSE(index_.Evict([] { return false; }));
  EXPECT_EQ(Free(), 90);
  EXPECT_TRUE(pins_.StateOf(1).pinned);
  EXPECT_FALSE(pins_.StateOf(2).pinned);
  pins_.Unpin(2);
  pins_.Unpin(1);
  EXPECT_FALSE(pins_.StateOf(1).pinned);
  EXPECT_FALSE(book_.IsPinned(hit.groups[0][0].id));
  EXPECT_EQ(Pinned(), 0);
  EXPECT_EQ(Unheld(), 10) << "they stay until room is needed";
  index_.Evict([] { return false; });
  EXPECT_EQ(Free(), 100);
}

// A pinned prompt goes with each document that it has; it is unpinned by its last one alone.
TEST_F(PinnedDocumentsTest, AForgottenDocumentIsPinnedInNoPrompt) {
  ASSERT_TRUE(pins_.Pin(us_, {{1, 0}, {2, 10}}, Known(10, us_)).ok());
  EXPECT_FALSE(pins_.StateOf(1).pinned);
  EXPECT_TRUE(pins_.StateOf(2).pinned);
  pins_.Unpin(1);
  EXPECT_TRUE(pins_.StateOf(2).pinned);
  pins_.Forget(1);
  EXPECT_FALSE(pins_.StateOf(2).pinned);
  EXPECT_EQ(Unheld(), 10);
}

TEST_F(PinnedDocumentsTest, QuotasOfATenantAndOfAll) {
  ASSERT_TRUE(pins_.CheckRoom(us_, 25 * kPage).ok());
  ASSERT_TRUE(pins_.Pin(us_, {{1, 0}}, Known(15, us_)).ok());
  ASSERT_TRUE(pins_.CheckRoom(us_, 10 * kPage).ok());
  const absl::Status own = pins_.CheckRoom(us_, 11 * kPage);
  EXPECT_EQ(own.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(own.GetPayload(kLimitPayload), absl::Cord("pinned"));
  EXPECT_THAT(own.message(), HasSubstr("needs 11 pages"));
  EXPECT_THAT(own.message(), HasSubstr("take 15 and may take at most 25 pages"));
  EXPECT_THAT(own.message(), HasSubstr("--max-pinned-by-tenant"));
  EXPECT_FALSE(pins_.Pin(us_, {{2, 0}}, Known(11, us_)).ok());
  ASSERT_TRUE(pins_.Pin(them_, {{3, 0}}, Known(25, them_)).ok());
  ASSERT_TRUE(pins_.Pin(us_, {{2, 0}}, Known(10, us_)).ok());
  const absl::Status all = pins_.CheckRoom(TenantId(), kPage);
  EXPECT_EQ(all.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(all.message(), HasSubstr("may take at most 50 pages"));
  EXPECT_THAT(all.message(), ::testing::Not(HasSubstr("take 50"))) << "others' are not told";
  pins_.Unpin(3);
  EXPECT_TRUE(pins_.CheckRoom(TenantId(), 25 * kPage).ok());
}

TEST_F(PinnedDocumentsTest, TimesToLiveEndByTheClockThatIsGiven) {
  const SteadyTime start;
  EXPECT_EQ(pins_.NextExpiry(), SteadyTime::max());
  ASSERT_TRUE(pins_.Pin(us_, {{1, 0}}, Known(5, us_)).ok());
  pins_.SetExpiry(1, start + seconds(10));
  pins_.SetExpiry(2, start + seconds(20));
  pins_.SetExpiry(1, start + seconds(30));  // the latest counts
  EXPECT_EQ(pins_.NextExpiry(), start + seconds(20));
  EXPECT_TRUE(pins_.Due(start + seconds(19)).empty());
  EXPECT_THAT(pins_.Due(start + seconds(20)), ::testing::ElementsAre(2));
  pins_.Forget(2);
  EXPECT_THAT(pins_.Due(start + seconds(40)), ::testing::ElementsAre(1));
  EXPECT_EQ(pins_.StateOf(1).expires, start + seconds(30));
  pins_.Unpin(1);
  EXPECT_EQ(pins_.StateOf(1).expires, start + seconds(30)) << "it goes on";
  pins_.Forget(1);
  EXPECT_EQ(pins_.StateOf(1).expires, std::nullopt);
  EXPECT_EQ(pins_.NextExpiry(), SteadyTime::max());
}

// The same in an engine.
class KeptDocumentsTest : public testing::PageTierFixture {
 protected:
  KeptDocumentsTest() : model_(testing::WithoutWindows(folder_)) {}

  // Memory for so many pages.
  void Start(int pages, bool on_disk = false, const Clock& clock = Clock::Real()) {
    engine_.reset();
    EngineOptions options = Options(model_, 1);
    if (!on_disk) options.kv_disk.clear();
    options.max_pinned = options.max_pinned_by_tenant = 0.5;
    options.admission = admission_;
    engine_ = Make(options);
    options.kv_memory_bytes =
        static_cast<size_t>(engine_->model().kv_bytes_per_token) * pages * kPage;
    engine_.reset();
    engine_ = Make(options, clock);
  }

  static RequestSpec Read(const std::vector<int32_t>& document, const std::string& content) {
    RequestSpec spec = Spec(document);
    spec.prefill_only = true;
    spec.shared_prefixes = {static_cast<int32_t>(document.size())};
    spec.documents = {{0, content}};
    return spec;
  }

  static RequestSpec Question(std::vector<int32_t> document, const std::string& content) {
    document.insert(document.end(), {7, 8, 9});
    RequestSpec spec = Spec(std::move(document));
    spec.documents = {{0, content}};
    return spec;
  }

  absl::Status Status(RequestSpec spec) {
    auto sink = std::make_shared<testing::CollectingSink>();
    const auto id = engine_->Submit(std::move(spec), sink);
    if (!id.ok()) return id.status();
    return sink->Wait()->status;
  }

  KeptDocument Find(const std::string& content) {
    const std::vector<std::string> contents = {content};
    return engine_->FindDocuments(TenantId(), contents, CancelFlag::Never())->at(0);
  }

  const std::string model_;
  AdmissionMode admission_ = AdmissionMode::kWorst;
  testing::ManualClock clock_;
  std::unique_ptr<Engine> engine_;
  const std::vector<int32_t> document_ = Prompt(10 * kPage, 300);
};

TEST_F(KeptDocumentsTest, LaterPromptsDoNotPushAPinnedDocumentOut) {
  Start(40);
  RequestSpec pinned = Read(document_, "a");
  pinned.pin = true;
  ASSERT_TRUE(Status(pinned).ok());
  EXPECT_TRUE(Find("a").pinned);
  EXPECT_EQ(Find("a").memory_tokens, 10 * kPage);
  const auto others = [&](int seed) {
    for (int i = 0; i < 4; ++i) Ask(*engine_, Spec(Prompt(20 * kPage, 300, seed + i)));
  };
  others(10);
  EXPECT_EQ(Ask(*engine_, Question(document_, "a")).usage.cached_tokens, 10 * kPage);
  EXPECT_TRUE(Status(pinned).ok()) << "again, although it is pinned";
  engine_->UnpinDocument(TenantId(), "a");
  ASSERT_TRUE(Eventually([&] { return !Find("a").pinned; }));
  others(20);
  EXPECT_EQ(Ask(*engine_, Question(document_, "a")).usage.cached_tokens, 0);
}

// The first pin and the planner once held their pages under one name, which ended the daemon.
TEST_F(KeptDocumentsTest, ARequestIsPlannedWhileADocumentIsPinned) {
  Start(40);
  RequestSpec pinned = Read(document_, "a");
  pinned.pin = true;
  ASSERT_TRUE(Status(pinned).ok());
  const auto plan = engine_->Plan(Question(document_, "a"), CancelFlag::Never());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->cached_tokens, 10 * kPage);
  EXPECT_TRUE(Find("a").pinned);
}

TEST_F(KeptDocumentsTest, PinsHaveAQuotaAndLeaveRoomOrSaySo) {
  Start(40);
  RequestSpec large = Read(Prompt(21 * kPage, 300, 5), "large");
  large.pin = true;
  const absl::Status refused = Status(large);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(refused.GetPayload(kLimitPayload), absl::Cord("pinned"));
  EXPECT_THAT(refused.message(), HasSubstr("needs 21 pages"));
  EXPECT_FALSE(Find("large").pinned);
  EXPECT_EQ(Find("large").memory_tokens, 0) << "it was not even read";
  RequestSpec pinned = Read(document_, "a");
  pinned.pin = true;
  ASSERT_TRUE(Status(pinned).ok());
  // 35 pages fit in 40, but not beside 10 pinned ones.
  const absl::Status full = Status(Spec(Prompt(35 * kPage - 12, 300, 6)));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("pinned documents leave 30 of 40"));
  EXPECT_FALSE(full.GetPayload(kRetryPayload).has_value());  // waiting does not unpin
  // A question about the pinned one needs only what is its own.
  std::vector<int32_t> longer = document_;
  const std::vector<int32_t> rest = Prompt(25 * kPage - 12, 300, 7);
  longer.insert(longer.end(), rest.begin(), rest.end());
  EXPECT_TRUE(Status(Spec(longer)).ok());
  engine_->UnpinDocument(TenantId(), "a");
  ASSERT_TRUE(Eventually([&] { return !Find("a").pinned; }));
  EXPECT_TRUE(Status(Spec(Prompt(35 * kPage - 12, 300, 6))).ok());
}

// It was admitted with few pages; with ten of forty pinned it could not give its longest answer.
TEST_F(KeptDocumentsTest, APinLeavesRoomForTheAnswersThatGrow) {
  admission_ = AdmissionMode::kExpected;
  Start(40);
  for (int i = 0; i < 8; ++i) Ask(*engine_, Spec({3, 4, 5}));
  RequestSpec growing = Spec(Prompt(5 * kPage, 300, 9));
  growing.sampling.max_tokens = 30 * kPage;
  auto sink = std::make_shared<testing::CollectingSink>();
  sink->set_full_after(5);
  const auto id = engine_->Submit(std::move(growing), sink);
  ASSERT_TRUE(id.ok() && sink->WaitTokens(5));
  EXPECT_LT(engine_->Load().ranks[0].kv_bytes_used,
            engine_->model().kv_bytes_per_token * 20 * kPage);
  RequestSpec pinned = Read(document_, "a");
  pinned.pin = true;
  const absl::Status refused = Status(pinned);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("a running answer could run out of pages"));
  EXPECT_TRUE(refused.GetPayload(kRetryPayload).has_value());  // the answer will end
  EXPECT_FALSE(Find("a").pinned);
  engine_->Cancel(*id);
  ASSERT_TRUE(sink->Wait().has_value());
  EXPECT_TRUE(Status(pinned).ok());
}

TEST_F(KeptDocumentsTest, BadWishesAreRefused) {
  Start(40);
  RequestSpec plain = Spec(document_);
  plain.pin = true;
  EXPECT_EQ(Status(plain).GetPayload(kFieldPayload), absl::Cord("pin"));
  RequestSpec brief = Read(document_, "a");
  for (const int64_t milliseconds : {0, 999, -1}) {
    brief.ttl = std::chrono::milliseconds(milliseconds);
    EXPECT_EQ(Status(brief).GetPayload(kFieldPayload), absl::Cord("ttl")) << milliseconds;
  }
  brief.ttl = std::chrono::hours(365 * 24 + 1);
  EXPECT_EQ(Status(brief).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KeptDocumentsTest, ADeletedDocumentLeavesMemoryAndDisk) {
  Start(40, /*on_disk=*/true);
  RequestSpec pinned = Read(document_, "a");
  pinned.pin = true;
  pinned.ttl = seconds(3600);
  ASSERT_TRUE(Status(pinned).ok());
  const std::vector<int32_t> other = Prompt(5 * kPage, 300, 8);
  ASSERT_TRUE(Status(Read(other, "b")).ok());
  ASSERT_TRUE(WaitForPages(*engine_, 15));
  EXPECT_EQ(Find("a").disk_tokens, 10 * kPage);
  EXPECT_EQ(Find("b").disk_tokens, 5 * kPage);
  EXPECT_GT(Find("a").expires_in.value_or(0), 3500);
  ASSERT_TRUE(engine_->ForgetDocument(TenantId(), "a", CancelFlag::Never()).ok());
  ASSERT_TRUE(Eventually([&] { return Find("a").memory_tokens == 0; }));
  EXPECT_FALSE(Find("a").pinned);
  EXPECT_EQ(Find("a").expires_in, std::nullopt);
  EXPECT_EQ(Find("a").disk_tokens, 0);
  EXPECT_EQ(Find("b").memory_tokens, 5 * kPage);
  EXPECT_EQ(Ask(*engine_, Question(document_, "a")).usage.cached_tokens, 0);
  EXPECT_EQ(Ask(*engine_, Question(other, "b")).usage.cached_tokens, 5 * kPage);
  // One that was found before it was deleted leaves nothing.
  ASSERT_TRUE(engine_->ForgetDocument(TenantId(), "a", CancelFlag::Never()).ok());
  RequestSpec late = Question(document_, "a");
  late.documents_found = std::chrono::steady_clock::now() - seconds(5);
  Ask(*engine_, late);
  EXPECT_EQ(Find("a").memory_tokens, 0);
  EXPECT_EQ(Ask(*engine_, Question(document_, "a")).usage.cached_tokens, 0);
}

// What a tier brought back is the document's too.
TEST_F(KeptDocumentsTest, RestoredPagesAreForgottenToo) {
  Start(40, /*on_disk=*/true);
  ASSERT_TRUE(Status(Read(document_, "a")).ok());
  ASSERT_TRUE(WaitForPages(*engine_, 10));
  Start(40, /*on_disk=*/true);
  EXPECT_EQ(Ask(*engine_, Question(document_, "a")).usage.restored_tokens, 10 * kPage);
  EXPECT_GE(Find("a").memory_tokens, 10 * kPage);
  ASSERT_TRUE(engine_->ForgetDocument(TenantId(), "a", CancelFlag::Never()).ok());
  ASSERT_TRUE(Eventually([&] { return Find("a").memory_tokens == 0; }));
  EXPECT_EQ(Ask(*engine_, Spec(document_)).usage.cached_tokens, 0);
}

TEST_F(KeptDocumentsTest, ATimeToLiveEndsByItself) {
  Start(40, /*on_disk=*/false, clock_);
  RequestSpec brief = Read(document_, "a");
  brief.pin = true;
  brief.ttl = hours(24);
  ASSERT_TRUE(Status(brief).ok());
  EXPECT_EQ(Find("a").expires_in, 24 * 3600);
  clock_.Advance(hours(24) - seconds(1));
  EXPECT_EQ(Find("a").expires_in, 1);
  EXPECT_EQ(Ask(*engine_, Question(document_, "a")).usage.cached_tokens, 10 * kPage);
  EXPECT_TRUE(Find("a").pinned);
  clock_.Advance(seconds(1));
  ASSERT_TRUE(Eventually([&] { return Find("a").memory_tokens == 0; }));
  EXPECT_FALSE(Find("a").pinned);
}

}  // namespace
}  // namespace annulus
