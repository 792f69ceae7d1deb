#include "bench/model/lone_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/rope.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {

LoneReader::LoneReader(const RankModel& model, const Options& options)
    : model_(model), options_(options) {}

absl::StatusOr<std::unique_ptr<LoneReader>> LoneReader::Create(const RankModel& model,
                                                               Backend& backend,
                                                               const Options& options) {
  if (options.attention.automatic()) {
    return absl::InvalidArgumentError(
        "attention auto is not allowed here: the engine chooses by its own measurements; name a "
        "policy");
  }
  ANNULUS_RETURN_IF_ERROR(CheckAssignment(options.attention, model.assignment_limits()));
  std::unique_ptr<LoneReader> reader(new LoneReader(model, options));
  // As many pages again for summaries of pages, which are never larger.
  const size_t texts = options.attention.dense() ? 1 : 2;
  const size_t pages =
      (static_cast<size_t>(options.longest) / static_cast<size_t>(model.page_shape.page_tokens) +
       2) *
      model.groups.size() * texts;
  RankSetOptions set;
  set.engine.threads = options.threads;
  set.engine.kv_memory_bytes = pages * GeometryOf(model).page_bytes();
  set.rows_per_rank = kMostRows;
  set.observer = options.observer;
  ANNULUS_ASSIGN_OR_RETURN(reader->ranks_, RankSet::Create(model, backend, set));
  return reader;
}

absl::Status LoneReader::Begin(int64_t tokens) {
  const int64_t page_tokens = model_.page_shape.page_tokens;
  const int64_t pages = (tokens + page_tokens - 1) / page_tokens;
  // Nobody else reads: the pages of a text are the first of the pool, summaries come behind them.
  int64_t needed = pages * std::ssize(model_.groups);
  const int64_t summarised = ranks_->PagesSummarised(SummariesOf(options_.attention));
  const int64_t summaries = summarised > 0 ? (pages + summarised - 1) / summarised : 0;
  const int32_t first_summary = static_cast<int32_t>(needed);
  needed += summaries * std::ssize(model_.groups);
  if (needed > ranks_->pool(0).page_count()) {
    return absl::ResourceExhaustedError(absl::StrCat("a text of ", tokens, " tokens takes ", needed,
                                                     " pages; there are ",
                                                     ranks_->pool(0).page_count()));
  }
  update_ = SequenceUpdate();
  update_.sequence = ++sequence_;
  update_.version = 1;
  SequenceTerms& terms = update_.terms.emplace();
  terms.version = update_.version;
  terms.ring = {0};
  terms.rope_length = RopeLength(model_.config.ropes, tokens);
  if (!options_.attention.dense()) {
    terms.attention = ResolveAssignment(options_.attention, tokens);
  }
  SummaryPages summary_pages(model_.groups.size());
  int32_t page_id = 0;
  int32_t summary_id = first_summary;
  for (size_t group = 0; group < model_.groups.size(); ++group) {
    TableDelta& table = update_.tables.emplace_back();
    for (int64_t page = 0; page < pages; ++page) {
      table.append.push_back({0, page_id++, static_cast<int32_t>(page * page_tokens)});
    }
    if (summaries == 0 || model_.groups[group].window > 0) continue;
    std::vector<int32_t>& ids = summary_pages[group].emplace_back(summaries);
    std::iota(ids.begin(), ids.end(), summary_id);
    summary_id += static_cast<int32_t>(summaries);
  }
  if (summaries > 0) terms.summaries = std::move(summary_pages);
  next_ = 0;
  return absl::OkStatus();
}

absl::StatusOr<RankResult> LoneReader::Read(std::span<const int32_t> tokens, bool logits) {
  auto plan = std::make_shared<StepPlan>();
  plan->step = ++step_;
  if (next_ == 0) {
    plan->updates.push_back(update_);
    if (sequence_ > 1) plan->ended.push_back(sequence_ - 1);
  }
  PlanItem item;
  item.sequence = sequence_;
  item.begin = next_;
  item.end = next_ + static_cast<int32_t>(tokens.size());
  item.tokens.assign(tokens.begin(), tokens.end());
  item.runs = {{0, item.begin, item.end - item.begin}};
  // The last layer makes queries only where a row's logits are wanted.
  item.logits_positions.resize(logits ? tokens.size() : 1);
  std::iota(item.logits_positions.begin(), item.logits_positions.end(),
            logits ? item.begin : item.end - 1);
  next_ = item.end;
  plan->items.push_back(std::move(item));
  ANNULUS_ASSIGN_OR_RETURN(std::vector<RankResult> results, ranks_->Run(plan));
  return std::move(results.front());
}

}  // namespace annulus::bench
