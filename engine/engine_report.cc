#include "engine/engine_report.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/process_memory.h"
#include "engine/model/experts/expert_cache.h"

namespace annulus {
namespace {

// What is reported together comes from one of these, so that its figures add up.
struct Moment {
  Coordinator::Snapshot now;
  std::vector<RankStatistics> ranks;
};

int64_t HeldBytes(const BufferPoolStats& stats, Lifetime lifetime) {
  return static_cast<int64_t>(stats.held_by_lifetime[static_cast<size_t>(lifetime)]);
}

RankLoad LookAtRank(const EngineParts& parts, int rank, const Coordinator::Snapshot& now,
                    const BufferPoolStats& stats) {
  const PageCounts& pages = now.pages[rank];
  const int64_t page_bytes = parts.page_bytes(rank);
  RankLoad load;
  load.rank = rank;
  load.up = now.healthy;
  load.device = parts.ranks->facts()[rank].device;
  load.node = parts.ranks->facts()[rank].node;
  load.kv_bytes_used = pages.in_use() * page_bytes;
  load.kv_bytes_total = pages.total() * page_bytes;
  // The kinds add up to what the rank holds.
  load.memory_bytes["kv_full"] = pages.full * page_bytes;
  load.memory_bytes["kv_window"] = pages.window * page_bytes;
  load.memory_bytes["kv_summaries"] = pages.summaries * page_bytes;
  load.memory_bytes["kv_reserved"] = pages.reserved * page_bytes;
  load.memory_bytes["kv_cached"] = pages.cached * page_bytes;
  load.memory_bytes["kv_free"] = pages.free * page_bytes;
  load.memory_bytes["step"] = HeldBytes(stats, Lifetime::kStep);
  for (const Lifetime kind : {Lifetime::kRingSlots, Lifetime::kWorkspace}) {
    const int64_t bytes = HeldBytes(stats, kind);
    if (bytes > 0) load.memory_bytes[std::string(LifetimeName(kind))] = bytes;
  }
  // One copy serves all ranks of a device; it is counted once, at the first of them.
  const bool first = rank <= static_cast<int>(parts.model.ranks.further_weights.size());
  load.memory_bytes["weights"] = first ? static_cast<int64_t>(parts.model.ranks.weights.bytes) : 0;
  return load;
}

Moment TakeMoment(const EngineParts& parts) {
  Moment moment{parts.coordinator->snapshot(), {}};
  for (int rank = 0; rank < parts.ranks->size(); ++rank) {
    moment.ranks.push_back(parts.ranks->Statistics(rank));
  }
  return moment;
}

EngineLoad LoadAt(const EngineParts& parts, const Moment& moment) {
  const Coordinator::Snapshot& now = moment.now;
  EngineLoad load;
  load.running = now.running;
  load.waiting = now.waiting;
  const SteadyTime last = std::max(now.last_turn, parts.ranks->last_progress());
  load.seconds_since_step = SecondsBetween(last, parts.clock().Now());
  const double stuck = std::chrono::duration<double>(parts.options.exchange_timeout).count();
  load.healthy = now.healthy && (!now.busy || load.seconds_since_step < stuck);
  load.process = ReadProcessMemory();
  load.memory.program = static_cast<int64_t>(parts.program_bytes);
  load.memory.weights = static_cast<int64_t>(parts.model.ranks.weights.bytes *
                                             (1 + parts.model.ranks.further_weights.size()));
  load.memory.requests = now.request_bytes_most;
  load.memory.kv_host = parts.stores->host_bytes();
  load.plan = parts.plan;
  load.memory.workspace = static_cast<int64_t>(parts.plan.expert_readers);
  int64_t used = 0;
  int64_t total = 0;
  for (int rank = 0; rank < parts.ranks->size(); ++rank) {
    used += now.pages[rank].in_use();
    total += now.pages[rank].total();
    const BufferPoolStats& stats = moment.ranks[rank].memory;
    load.ranks.push_back(LookAtRank(parts, rank, now, stats));
    if (rank >= parts.span().local) continue;  // its memory is that of a worker
    load.memory.kv += now.pages_most[rank] * parts.page_bytes(rank);
    load.memory.step += HeldBytes(stats, Lifetime::kStep);
    load.memory.ring += HeldBytes(stats, Lifetime::kRingSlots);
    load.memory.workspace += static_cast<int64_t>(moment.ranks[rank].workspace_bytes);
  }
  load.stall_budget_seconds = now.stall_budget_seconds;
  load.smallest_chunk_seconds = now.smallest_chunk_seconds;
  load.tiers = parts.stores->Load();
  load.exchange = parts.exchange.rates;
  if (parts.has_workers()) parts.ranks->links().value_or(LinkRates()).PutInto(load.exchange);
  load.exchange_source = parts.exchange.source;
  load.ring_transport = parts.ranks->transport();
  load.ring = parts.ranks->workers();
  for (WorkerLoad& worker : load.ring.workers) {
    for (int i = 0; i < worker.ranks; ++i) {
      worker.exposed_seconds +=
          parts.metrics->ranks[worker.first_rank + i].exposed_wait_seconds.value();
    }
  }
  load.kv_usage = total > 0 ? static_cast<double>(used) / static_cast<double>(total) : 0;
  return load;
}

void ShowExperts(const ExpertCounts& counts, EngineMetrics& metrics) {
  metrics.expert_hits.Raise(static_cast<double>(counts.hits));
  metrics.expert_misses.Raise(static_cast<double>(counts.misses));
  metrics.expert_read_bytes.Raise(static_cast<double>(counts.read_bytes));
  metrics.expert_wait_seconds.Raise(counts.wait_seconds);
  metrics.expert_steps.Raise(static_cast<double>(counts.steps));
  metrics.expert_waited_steps.Raise(static_cast<double>(counts.waited_steps));
}

}  // namespace

EngineLoad LoadOf(const EngineParts& parts) { return LoadAt(parts, TakeMoment(parts)); }

EngineReport ReportOf(const EngineParts& parts) {
  const Moment moment = TakeMoment(parts);
  EngineReport report{LoadAt(parts, moment), {}};
  for (const RankLoad& rank : report.load.ranks) {
    for (const auto& [kind, bytes] : rank.memory_bytes) {
      parts.metrics->rank_memory_bytes.With({absl::StrCat(rank.rank), kind})
          .Set(static_cast<double>(bytes));
    }
    parts.metrics->ranks[rank.rank].up.Set(rank.up ? 1 : 0);
    parts.metrics->graphs[rank.rank].Show(moment.ranks[rank.rank].graphs);
    const BufferPoolStats& pool = moment.ranks[rank.rank].memory;
    parts.metrics->pools[rank.rank].Show({.held = pool.held,
                                          .free = pool.free,
                                          .limit = pool.limit,
                                          .high_water = pool.high_water_held,
                                          .fragmentation_ratio = pool.fragmentation_ratio(),
                                          .trims = pool.trims,
                                          .trimmed_bytes = pool.trimmed_bytes,
                                          .refusals = pool.refusals});
    const PageCounts& pages = moment.now.pages[rank.rank];
    parts.metrics->pages[rank.rank].Show({.held = pages.in_use(),
                                          .reserved = pages.reserved,
                                          .cached = pages.cached,
                                          .free = pages.free,
                                          .most = moment.now.pages_most[rank.rank]},
                                         parts.page_bytes(rank.rank));
  }
  const PatternCache::Counters patterns = parts.ranks->patterns().counters();
  parts.metrics->pattern_cache_hits.Raise(static_cast<double>(patterns.hits));
  parts.metrics->pattern_cache_misses.Raise(static_cast<double>(patterns.misses));
  parts.metrics->pattern_cache_bytes.Set(static_cast<double>(patterns.bytes));
  if (parts.model.ranks.weights.expert_cache != nullptr) {
    ShowExperts(parts.model.ranks.weights.expert_cache->counts(), *parts.metrics);
  }
  parts.stores->Show(*parts.metrics);
  report.metrics = parts.metrics->Collect();
  return report;
}

}  // namespace annulus
