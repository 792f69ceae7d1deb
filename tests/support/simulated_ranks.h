#ifndef ANNULUS_TESTS_SUPPORT_SIMULATED_RANKS_H_
#define ANNULUS_TESTS_SUPPORT_SIMULATED_RANKS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/memory/buffer_pool.h"
#include "engine/memory/kv_pool.h"
#include "engine/runner/plan_check.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/placement.h"
#include "kernels/base/status_macros.h"
#include "tests/support/fake_backend.h"
#include "tests/support/through_bytes.h"

namespace annulus::testing {

struct SimulatedRanksOptions {
  int ranks = 2;
  int32_t pages = 64;  // of each rank
  int32_t page_tokens = 16;
  std::vector<int32_t> group_windows = {0};
  int layers = 1;
  bool has_memory = false;  // whether pages have bytes, which the ranks never write
  std::function<void(const StepPlan&)> on_start = {};  // of each step, before it begins
};

// Limits of a coordinator of simulated ranks, with a cache group for each of `windows`.
inline PlanLimits SimulatedLimits(int ranks, int32_t page_tokens, std::vector<int32_t> windows) {
  PlanLimits limits;
  limits.ranks = ranks;
  limits.shards = ShardsFor(ranks);
  limits.page_tokens = page_tokens;
  limits.prefill_rows_per_rank = 64;
  limits.draft_rows_per_rank = 16;
  limits.tokens_per_rank = 64;
  limits.group_windows = std::move(windows);
  return limits;
}

// Ranks that do no arithmetic: each plan is held against what the plans before it have said, as
// real ranks do, and every sampled row is answered by a letter that its position gives. Plans and
// results go through bytes. A test may hold steps back and have them fail. All but the port's own
// calls are thread-safe.
//
// They note which rows the pages hold, if nobody else writes pages (has_memory), and fail the test
// if a row reads one that no step has written, or whose rank has lost its pages since.
class SimulatedRanks final : public RankPort {
 public:
  explicit SimulatedRanks(const SimulatedRanksOptions& options)
      : on_start_(options.on_start), known_(options.ranks), suspended_(options.ranks) {
    model_.config.layers.resize(static_cast<size_t>(options.layers));
    model_.page_shape.page_tokens = options.page_tokens;
    for (const int32_t window : options.group_windows) {
      model_.groups.emplace_back().window = window;
    }
    facts_.assign(options.ranks,
                  {.pages = options.pages, .page_bytes = kPageBytes, .device = "none"});
    written_.assign(options.ranks, std::vector<Written>(static_cast<size_t>(options.pages)));
    wire_ = {.pages = page_counts(),
             .groups = static_cast<int>(options.group_windows.size()),
             .model = {.page_tokens = options.page_tokens, .layers = options.layers},
             .vocabulary = 257};  // of MakeByteTokenizer, which tests with these ranks use
    for (int rank = 0; rank < options.ranks && options.has_memory; ++rank) {
      const KvGeometry geometry{.shape = {}, .layers_per_page = 1, .layer_page_bytes = kPageBytes};
      const size_t bytes = static_cast<size_t>(options.pages) * geometry.page_bytes();
      pools_.push_back(std::make_unique<BufferPool>(
          memory_, BufferPool::Options{.limit_bytes = 2 * bytes, .name = "simulated"}));
      pages_.push_back(KvPool::Create(*pools_.back(), geometry, bytes, /*poison=*/false).value());
    }
  }

  static constexpr size_t kPageBytes = 4096;

  // The token that follows `position`.
  static int32_t TokenAt(int32_t position) { return 'a' + position % 26; }

  // From now on steps wait until Allow has let them end.
  void HoldSteps() {
    std::lock_guard lock(mutex_);
    allowed_ = 0;
  }
  void Allow(int steps = std::numeric_limits<int>::max()) {
    std::lock_guard lock(mutex_);
    allowed_ = steps;
    changed_.notify_all();
  }
  // Waits until `count` steps have begun.
  bool WaitBegun(size_t count, double seconds = 60) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return plans_.size() >= count; });
  }
  // The next step that has rows fails on a rank; `after`: the state from then on.
  // `lost`: the ranks whose pages lose their contents.
  void FailNext(absl::Status status, RanksState after = RanksState::kUp,
                std::vector<int32_t> lost = {}) {
    std::lock_guard lock(mutex_);
    failure_ = std::move(status);
    after_ = after;
    lost_ = std::move(lost);
  }
  // What happens between steps: the state from now on, whose pages were lost, and what the ranks
  // wait for. As the port says, they are up only once somebody has taken what was lost.
  void Become(RanksState state, std::vector<int32_t> lost = {}, std::string awaited = "") {
    std::lock_guard lock(mutex_);
    state_ = state;
    awaited_ = std::move(awaited);
    for (const int32_t rank : lost) written_[rank].assign(written_[rank].size(), Written());
    ForgetAll();
    lost_ = std::move(lost);
  }
  // Nobody hosts these ranks from now on. Have them lost next, since somebody must hear of it.
  void LeaveOut(const std::vector<int32_t>& ranks) {
    std::lock_guard lock(mutex_);
    left_out_.insert(ranks.begin(), ranks.end());
  }
  // Waits until somebody has taken what was lost.
  bool WaitTaken() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return lost_.empty(); });
  }
  // `fails`: asked for each step that has rows, on the coordinator's thread. Nothing: it goes well;
  // otherwise it fails, and these ranks, if any, lose their pages.
  using Fails = std::function<std::optional<std::vector<int32_t>>(const StepPlan&)>;
  void FailWhen(Fails fails) {
    std::lock_guard lock(mutex_);
    fails_ = std::move(fails);
  }
  // The next `times` steps with rows of this sequence fail for `why`.
  void FailStepsOf(SequenceId sequence,
                   absl::Status why = absl::InternalError("these rows cannot be computed"),
                   int times = std::numeric_limits<int>::max()) {
    std::lock_guard lock(mutex_);
    faulty_ = sequence;
    fault_ = std::move(why);
    faults_ = times;
  }
  // The next step that has rows brings no tokens.
  void LoseNextTokens() {
    std::lock_guard lock(mutex_);
    lose_tokens_ = true;
  }
  // The next step that has rows reports so of its first item.
  void ReportNext(LayerAttention report) {
    std::lock_guard lock(mutex_);
    report_ = std::move(report);
  }
  // Of all steps so far.
  std::vector<StepPlan> plans() const {
    std::lock_guard lock(mutex_);
    return plans_;
  }
  // Sequences that the ranks have not been told to forget.
  size_t known() const {
    std::lock_guard lock(mutex_);
    return known_[0].size();
  }

  absl::Status Start(std::shared_ptr<const StepPlan> plan) override {
    if (on_start_) on_start_(*plan);
    std::lock_guard lock(mutex_);
    if (state_ != RanksState::kUp) return absl::UnavailableError("the ranks are gone");
    plans_.push_back(*plan);
    changed_.notify_all();
    absl::Status followed = FollowAll(*plan);
    if (followed.ok()) return followed;
    if (plans_.size() == answered_ + 1) ForgetAll();
    plans_.pop_back();
    return followed;
  }

  absl::StatusOr<std::vector<RankResult>> Results() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return allowed_ > 0; });
    if (allowed_ != std::numeric_limits<int>::max()) --allowed_;
    const StepPlan& plan = plans_.at(answered_++);
    const std::vector<PlanItem>& items = plan.items;
    const bool ends = EndsItsChunks(plan);
    const bool faulty = std::any_of(items.begin(), items.end(),
                                    [&](const PlanItem& item) { return item.sequence == faulty_; });
    if (faulty && faults_-- > 0) failure_ = fault_;
    if (fails_ && !items.empty() && !failure_.has_value()) {
      std::optional<std::vector<int32_t>> lost = fails_(plan);
      if (lost.has_value()) failure_ = absl::InternalError("a rank was lost");
      lost_ = std::move(lost).value_or(std::vector<int32_t>());
    }
    if (failure_.has_value() && !items.empty()) {
      state_ = after_;
      for (const int32_t rank : lost_) written_[rank].assign(written_[rank].size(), Written());
      for (size_t i = answered_ - 1; i < plans_.size(); ++i) Undo(plans_[i]);
      answered_ = plans_.size();  // its successor never begins
      ForgetAll();
      return *std::exchange(failure_, std::nullopt);
    }
    if (ends) CheckReads(items);
    std::vector<RankResult> results(facts_.size());
    const bool lost = !items.empty() && std::exchange(lose_tokens_, false);
    for (const PlanItem& item : items) {
      if (!item.sampled && ends) Write(item, item.end);
      if (!item.sampled || !ends || lost) continue;
      for (int32_t row = item.begin; row < item.end; ++row) {
        Write(item, row + 1);
        results[item.runs[0].rank].tokens.push_back(
            {item.sequence, TokenAt(row + 1), false, std::nullopt, absl::OkStatus()});
        // A guessed row behind it counts if it holds this token.
        if (row + 1 < item.end && item.tokens[row + 1 - item.begin] != TokenAt(row + 1)) break;
      }
    }
    if (report_.has_value() && !items.empty() && ends) {
      LayerAttention& report =
          results[0].attention.emplace_back(*std::exchange(report_, std::nullopt));
      report.sequence = items[0].sequence;
      report.begin = items[0].begin;
    }
    for (RankResult& result : results) {
      absl::StatusOr<RankResult> received = ThroughBytes(result, plan, wire_);
      if (!received.ok()) {
        answered_ = plans_.size();  // as above
        ForgetAll();
        return received.status();
      }
      result = *std::move(received);
    }
    return results;
  }

  std::vector<int32_t> TakeLost() override {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
    return std::exchange(lost_, {});
  }
  bool is_hosted(int rank) const override {
    std::lock_guard lock(mutex_);
    return !left_out_.contains(rank);
  }
  std::string awaited() const override {
    std::lock_guard lock(mutex_);
    return awaited_;
  }
  double pause() const override { return 0; }
  RanksState state() const override {
    std::lock_guard lock(mutex_);
    return state_;
  }
  SteadyTime last_progress() const override { return SteadyTime(); }

  const std::vector<RankFacts>& facts() const override { return facts_; }
  RankStatistics Statistics(int) const override { return {}; }
  std::string transport() const override { return "none"; }
  int64_t visiting_pages() const override { return std::numeric_limits<int64_t>::max(); }
  int64_t PagesSummarised(const SummaryKinds&) const override { return 0; }
  PatternCache& patterns() override { return patterns_; }
  PageBook::Hooks page_hooks() override {
    return {.on_take = {}, .on_free = [this](const PageBook::Event& page) {
              std::lock_guard lock(mutex_);
              written_[page.id.rank][page.id.page] = Written();
            }};
  }
  const KvPool* local_pages(int rank) const override {
    return pages_.empty() ? nullptr : pages_[rank].get();
  }
  // Of the pages, if they have bytes.
  Backend& memory() { return memory_; }

 private:
  // The rows of a page that were written: `rows` from position `first` on.
  struct Written {
    int32_t first = -1;
    int32_t rows = 0;
  };

  // Calls `use` with each page of the item's sequence that has positions below `end`.
  template <typename Use>
  void ForEachPage(const PlanItem& item, int32_t end, const Use& use) {
    const auto known = known_[0].find(item.sequence);
    if (known == known_[0].end()) return;
    for (const auto& entries : known->second.groups) {
      for (const PageEntry& entry : entries) {
        if (entry.first_position < end) use(entry, written_[entry.rank][entry.page]);
      }
    }
  }

  // Rows [item.begin, end) are written.
  void Write(const PlanItem& item, int32_t end) {
    ForEachPage(item, end, [&](const PageEntry& entry, Written& page) {
      if (entry.first_position + model_.page_shape.page_tokens <= item.begin) return;
      if (page.first != entry.first_position) page = {entry.first_position, 0};
      page.rows =
          std::max(page.rows, std::min(end - page.first, int32_t{model_.page_shape.page_tokens}));
    });
  }

  // What the rows of a step that failed were to write is not defined.
  void Undo(const StepPlan& plan) {
    for (const PlanItem& item : plan.items) {
      ForEachPage(item, item.end, [&](const PageEntry& entry, Written& page) {
        if (page.first == entry.first_position) {
          page.rows = std::min(page.rows, std::max(0, item.begin - page.first));
        }
      });
    }
  }

  // Items see rows that earlier steps have written, and those of their own sequence.
  void CheckReads(const std::vector<PlanItem>& items) {
    if (!pages_.empty()) return;
    for (const PlanItem& item : items) {
      int32_t begin = item.begin;
      for (const PlanItem& other : items) {
        if (other.sequence == item.sequence) begin = std::min(begin, other.begin);
      }
      ForEachPage(item, begin, [&](const PageEntry& entry, const Written& page) {
        const int32_t rows =
            std::min(begin - entry.first_position, int32_t{model_.page_shape.page_tokens});
        if (page.first == entry.first_position && page.rows >= rows) return;
        ADD_FAILURE() << "row " << item.begin << " of sequence " << item.sequence << " reads page "
                      << entry.page << " of rank " << entry.rank << ", which has " << page.rows
                      << " rows of those from position " << entry.first_position << " on";
      });
    }
  }

  void ForgetAll() {
    for (auto& sequences : known_) sequences.clear();
    for (auto& suspended : suspended_) suspended.reset();
  }

  absl::Status FollowStretch(const StepPlan& plan, std::optional<SuspendedChunk>& suspended) const {
    for (const SequenceId id : plan.ended) {
      if (suspended.has_value() && suspended->items[0].sequence == id) suspended.reset();
    }
    ANNULUS_RETURN_IF_ERROR(
        CheckStretch(plan, suspended.has_value() ? &*suspended : nullptr, model_.layers()));
    if (!plan.stretch.has_value()) return absl::OkStatus();
    suspended = {plan.items, plan.stretch->end_layer};
    if (plan.stretch->ends_chunk) suspended.reset();
    return absl::OkStatus();
  }

  absl::Status FollowAll(const StepPlan& plan) {
    ANNULUS_ASSIGN_OR_RETURN(const StepPlan received, ThroughBytes(plan, wire_));
    for (int rank = 0; rank < size(); ++rank) ANNULUS_RETURN_IF_ERROR(Follow(received, rank));
    return absl::OkStatus();
  }

  absl::Status Follow(const StepPlan& plan, int rank) {
    auto& sequences = known_[rank];
    for (const SequenceId id : plan.ended) sequences.erase(id);
    ANNULUS_RETURN_IF_ERROR(FollowStretch(plan, suspended_[rank]));
    for (const SequenceUpdate& update : plan.updates) {
      RankSequence& sequence = sequences[update.sequence];
      if (update.terms.has_value()) {
        sequence.version = update.terms->version;
        sequence.ring = update.terms->ring;
        sequence.home = update.terms->home;
      }
      if (sequence.version != update.version) return absl::InternalError("terms were not sent");
      ANNULUS_RETURN_IF_ERROR(CheckTables(update, sequence, model_));
      sequence.groups.resize(update.tables.size());
      for (size_t g = 0; g < update.tables.size(); ++g) {
        auto& entries = sequence.groups[g];
        const TableDelta& delta = update.tables[g];
        entries.erase(entries.begin(), entries.begin() + delta.drop_front);
        entries.insert(entries.end(), delta.append.begin(), delta.append.end());
      }
      if (!update.setup.has_value()) continue;
      const SamplingSetup& setup = *update.setup;
      sequence.sampler =
          std::make_unique<Sampler>(setup.params, setup.vocabulary, setup.end_of_text_ids);
    }
    for (const PlanItem& item : plan.items) {
      const auto sequence = sequences.find(item.sequence);
      if (sequence == sequences.end()) return absl::InternalError("rows of an unknown sequence");
      ANNULUS_RETURN_IF_ERROR(CheckItem(item, sequence->second, model_, rank));
      if (item.sampled) sequence->second.last_sampled = TokenAt(item.end);
    }
    return absl::OkStatus();
  }

  const std::function<void(const StepPlan&)> on_start_;
  RankModel model_;  // groups and page size alone
  std::vector<RankFacts> facts_;
  CodecLimits wire_;
  PatternCache patterns_{size_t{1} << 20};
  FakeBackend memory_;
  std::vector<std::unique_ptr<BufferPool>> pools_;  // [rank]
  std::vector<std::unique_ptr<KvPool>> pages_;      // [rank]
  std::vector<std::vector<Written>> written_;       // [rank][page]
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unordered_map<SequenceId, RankSequence>> known_;  // [rank]
  std::vector<std::optional<SuspendedChunk>> suspended_;             // [rank]
  std::set<int32_t> left_out_;
  std::vector<StepPlan> plans_;
  size_t answered_ = 0;  // how many of them have results
  int allowed_ = std::numeric_limits<int>::max();
  std::optional<absl::Status> failure_;
  std::optional<LayerAttention> report_;
  std::vector<int32_t> lost_;
  Fails fails_;
  std::optional<SequenceId> faulty_;
  absl::Status fault_;
  int faults_ = 0;
  RanksState after_ = RanksState::kUp;
  RanksState state_ = RanksState::kUp;
  std::string awaited_;
  bool lose_tokens_ = false;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_SIMULATED_RANKS_H_
