#include "engine/metrics/engine_metrics.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

const char* RejectionName(AdmissionRejection reason) {
  switch (reason) {
    case AdmissionRejection::kQueueFull:
      return "queue_full";
    case AdmissionRejection::kContext:
      return "context";
    case AdmissionRejection::kMemory:
      return "memory";
  }
  ANNULUS_CHECK(false) << "admission rejection " << static_cast<int>(reason);
  return "";
}

std::vector<RankMetrics> MakeRanks(int ranks, MetricSet& set) {
  ANNULUS_CHECK(ranks >= 1) << "ranks " << ranks;
  Family<Gauge>& up =
      set.AddGauges("rank_up", "1 while the rank answers, 0 once it does not.", {"rank"});
  Family<Counter>& seconds =
      set.AddCounters("ring_seconds_total",
                      "Seconds that a rank computed attention (compute), waited for a peer with "
                      "nothing to compute (exposed_wait) and sent data to its peers (send).",
                      {"rank", "phase"});
  Family<Counter>& bytes = set.AddCounters(
      "ring_bytes_total",
      "Bytes that a rank sent to its peers, by ring mode; estimate: to choose sparse blocks.",
      {"rank", "mode"});
  std::vector<RankMetrics> result;
  for (int i = 0; i < ranks; ++i) {
    const std::string rank = absl::StrCat(i);
    result.push_back({.up = up.With({rank}),
                      .compute_seconds = seconds.With({rank, "compute"}),
                      .exposed_wait_seconds = seconds.With({rank, "exposed_wait"}),
                      .send_seconds = seconds.With({rank, "send"}),
                      .pass_kv_bytes = bytes.With({rank, "pass_kv"}),
                      .pass_q_bytes = bytes.With({rank, "pass_q"}),
                      .estimate_bytes = bytes.With({rank, "estimate"})});
  }
  return result;
}

std::vector<GraphMetrics> MakeGraphs(int ranks, MetricSet& set) {
  Family<Counter>& steps = set.AddCounters(
      "graph_steps_total",
      "Steps without prompt tokens, by how the device got their kernel launches: as one graph "
      "(whole), or in several parts, because other work had to run in between (pieces). Steps with "
      "prompt tokens use no graph.",
      {"rank", "outcome"});
  Family<Counter>& launches = set.AddCounters(
      "graph_launches_total",
      "Kernel launches of the steps in graph_steps_total: in a graph (graph), or one by one, "
      "because the part was short (single).",
      {"rank", "how"});
  Family<Counter>& updates = set.AddCounters(
      "graph_updates_total",
      "Kernel launches in graphs that were changed, because they differed from the step before.",
      {"rank"});
  Family<Counter>& built = set.AddCounters(
      "graph_built_total", "Graphs built, because a part of a step was new or had other launches.",
      {"rank"});
  Family<Counter>& cuts =
      set.AddCounters("graph_cuts_total", "Cuts that split a step's graph, by what caused them.",
                      {"rank", "reason"});
  std::vector<GraphMetrics> result;
  for (int i = 0; i < ranks; ++i) {
    const std::string rank = absl::StrCat(i);
    result.push_back({.whole = steps.With({rank, "whole"}),
                      .pieces = steps.With({rank, "pieces"}),
                      .in_graphs = launches.With({rank, "graph"}),
                      .single = launches.With({rank, "single"}),
                      .updates = updates.With({rank}),
                      .built = built.With({rank}),
                      .cut_by_wait = cuts.With({rank, "wait"}),
                      .cut_by_event = cuts.With({rank, "event"}),
                      .cut_by_copy = cuts.With({rank, "copy"}),
                      .cut_by_memory = cuts.With({rank, "memory"}),
                      .cut_by_library = cuts.With({rank, "library"})});
  }
  return result;
}

// The families of all pools, and the metrics of one of them.
class PoolFamilies {
 public:
  explicit PoolFamilies(MetricSet& set)
      : bytes_(set.AddGauges(
            "pool_bytes",
            "Bytes of a memory pool by state: held (in use), reserved (set aside for "
            "running requests, still empty), cached (kept for reuse until the room is "
            "needed) or free.",
            {"pool", "state"})),
        limit_(set.AddGauges("pool_limit_bytes", "Largest size of a memory pool, in bytes.",
                             {"pool"})),
        high_water_(set.AddGauges(
            "pool_high_water_bytes",
            "Peak of the bytes of a memory pool that were not free, since the start.", {"pool"})),
        fragmentation_(set.AddGauges(
            "pool_fragmentation_ratio",
            "How scattered the free bytes of a memory pool are: 1 - largest free block / free "
            "bytes, 0 to 1.",
            {"pool"})),
        trims_(set.AddCounters("pool_trims_total",
                               "Times that a memory pool gave memory back to the device.",
                               {"pool"})),
        trimmed_(set.AddCounters("pool_trimmed_bytes_total",
                                 "Bytes that a memory pool gave back to the device.", {"pool"})),
        refusals_(set.AddCounters("pool_refusals_total",
                                  "Allocations that a memory pool refused because of its limit.",
                                  {"pool"})) {}

  PoolMetrics Pool(const std::string& name) {
    return {.held = bytes_.With({name, "held"}),
            .free = bytes_.With({name, "free"}),
            .limit = limit_.With({name}),
            .high_water = high_water_.With({name}),
            .fragmentation_ratio = fragmentation_.With({name}),
            .trims = trims_.With({name}),
            .trimmed_bytes = trimmed_.With({name}),
            .refusals = refusals_.With({name})};
  }

  PagePoolMetrics Pages(const std::string& name) {
    return {.held = bytes_.With({name, "held"}),
            .reserved = bytes_.With({name, "reserved"}),
            .cached = bytes_.With({name, "cached"}),
            .free = bytes_.With({name, "free"}),
            .limit = limit_.With({name}),
            .high_water = high_water_.With({name})};
  }

 private:
  Family<Gauge>& bytes_;
  Family<Gauge>& limit_;
  Family<Gauge>& high_water_;
  Family<Gauge>& fragmentation_;
  Family<Counter>& trims_;
  Family<Counter>& trimmed_;
  Family<Counter>& refusals_;
};

class TierFamilies {
 public:
  explicit TierFamilies(MetricSet& set) : set_(set) {}

  TierMetrics Tier(const std::string& name) {
    return {.up = up_.With({name}),
            .bytes = bytes_.With({name}),
            .limit = limit_.With({name}),
            .pages = pages_.With({name}),
            .waiting = waiting_.With({name}),
            .hits = hits_.With({name}),
            .restores = restores_.With({name}),
            .rejects = rejects_.With({name}),
            .checks = checks_.With({name}),
            .mismatches = mismatches_.With({name}),
            .io_errors = io_errors_.With({name}),
            .read_seconds = seconds_.With({name, "read"}),
            .write_seconds = seconds_.With({name, "write"}),
            .wait_seconds = waits_.With({name}),
            .read_bytes = moved_.With({name, "read"}),
            .written_bytes = moved_.With({name, "write"})};
  }

 private:
  Family<Gauge>& Gauges(const char* name, const char* help) {
    return set_.AddGauges(name, help, {"tier"});
  }
  Family<Counter>& Counters(const char* name, const char* help) {
    return set_.AddCounters(name, help, {"tier"});
  }

  MetricSet& set_;
  Family<Counter>& seconds_ = set_.AddCounters(
      "kv_tier_seconds_total", "Seconds spent reading or writing pages, all threads together.",
      {"tier", "way"});
  Family<Counter>& moved_ =
      set_.AddCounters("kv_tier_moved_bytes_total",
                       "Bytes of pages read from a tier or written to it.", {"tier", "way"});
  Family<Counter>& waits_ =
      Counters("kv_tier_wait_seconds_total",
               "Seconds that prompts waited for a tier to save their earlier chunks, added up.");
  Family<Gauge>& up_ = Gauges("kv_tier_up", "1 while the tier is in use, 0 if it is not.");
  Family<Gauge>& bytes_ = Gauges("kv_tier_bytes", "Bytes of the pages in a tier.");
  Family<Gauge>& limit_ = Gauges("kv_tier_limit_bytes", "Largest size of a tier, in bytes.");
  Family<Gauge>& pages_ = Gauges("kv_tier_pages", "Pages in a tier.");
  Family<Gauge>& waiting_ = Gauges(
      "kv_tier_waiting_pages", "Pages that wait to be written to a tier, or are being written.");
  Family<Counter>& hits_ =
      Counters("kv_tier_hits_total", "Prompt tokens whose keys and values were read from a tier.");
  Family<Counter>& restores_ =
      Counters("kv_tier_restores_total", "Prompts with a prefix that was read from a tier.");
  Family<Counter>& rejects_ =
      Counters("kv_tier_rejects_total",
               "Pages of a tier that failed a check of their header, length or checksum.");
  Family<Counter>& checks_ = Counters(
      "kv_tier_checks_total", "Pages of a tier that were compared with newly computed ones.");
  Family<Counter>& mismatches_ =
      Counters("kv_tier_mismatches_total",
               "Comparisons in which a page of a tier differed from the newly computed one; it and "
               "the pages read with it were dropped.");
  Family<Counter>& io_errors_ = Counters(
      "kv_tier_io_errors_total",
      "Failed calls to a tier's disk, and failed copies between a tier and a device; the first "
      "failure turns the tier off.");
};

KvTierMetrics MakeTiers(MetricSet& set) {
  TierFamilies families(set);
  return {.disk = families.Tier("disk"), .host = families.Tier("host")};
}

double Value(size_t bytes) { return static_cast<double>(bytes); }

}  // namespace

void GraphMetrics::Show(const GraphCounts& counts) {
  const auto show = [](Counter& counter, int64_t count) {
    counter.Raise(static_cast<double>(count));
  };
  show(whole, counts.whole);
  show(pieces, counts.in_pieces);
  show(in_graphs, counts.replayed);
  show(single, counts.single);
  show(updates, counts.updated);
  show(built, counts.built);
  show(cut_by_wait, counts.cut_by_wait);
  show(cut_by_event, counts.cut_by_event);
  show(cut_by_copy, counts.cut_by_copy);
  show(cut_by_memory, counts.cut_by_memory);
  show(cut_by_library, counts.cut_by_library);
}

void PoolMetrics::Show(const Figures& figures) {
  held.Set(Value(figures.held));
  free.Set(Value(figures.free));
  limit.Set(Value(figures.limit));
  high_water.Set(Value(figures.high_water));
  fragmentation_ratio.Set(figures.fragmentation_ratio);
  trims.Raise(static_cast<double>(figures.trims));
  trimmed_bytes.Raise(Value(figures.trimmed_bytes));
  refusals.Raise(static_cast<double>(figures.refusals));
}

void PagePoolMetrics::Show(const Pages& pages, int64_t page_bytes) {
  held.Set(static_cast<double>(pages.held * page_bytes));
  reserved.Set(static_cast<double>(pages.reserved * page_bytes));
  cached.Set(static_cast<double>(pages.cached * page_bytes));
  free.Set(static_cast<double>(pages.free * page_bytes));
  const int64_t all = pages.held + pages.reserved + pages.cached + pages.free;
  limit.Set(static_cast<double>(all * page_bytes));
  high_water.Set(static_cast<double>(pages.most * page_bytes));
}

void TierMetrics::Show(const Figures& figures) {
  up.Set(figures.up ? 1 : 0);
  bytes.Set(static_cast<double>(figures.bytes));
  limit.Set(static_cast<double>(figures.limit));
  pages.Set(static_cast<double>(figures.pages));
  rejects.Raise(static_cast<double>(figures.rejects));
  mismatches.Raise(static_cast<double>(figures.mismatches));
  io_errors.Raise(static_cast<double>(figures.io_errors));
}

EngineMetrics::EngineMetrics(int rank_count, const ModelInfo& model)
    : ranks(MakeRanks(rank_count, set_)),
      graphs(MakeGraphs(rank_count, set_)),
      tiers(MakeTiers(set_)) {
  PoolFamilies families(set_);
  for (int rank = 0; rank < rank_count; ++rank) {
    pools.push_back(families.Pool(absl::StrCat("rank", rank)));
    pages.push_back(families.Pages(absl::StrCat("rank", rank, "-pages")));
  }
  // A counter that stands at 0 from the start lets a rate see its first event.
  for (const char* reason : {"stop", "length"}) request_success_.With({reason});
  for (auto reason : {AdmissionRejection::kQueueFull, AdmissionRejection::kContext,
                      AdmissionRejection::kMemory}) {
    admission_rejections_.With({RejectionName(reason)});
  }
  set_.AddGauges("model_info", "The model that is served; always 1.",
                 {"architecture", "weights_dtype", "kv_dtype", "kernels"})
      .With({model.architecture, std::string(DTypeName(model.weights_dtype)),
             std::string(DTypeName(model.kv_dtype)), model.kernels})
      .Set(1);
}

void EngineMetrics::CountFinished(FinishReason reason) {
  if (reason == FinishReason::kStop) request_success_.With({"stop"}).Increment();
  if (reason == FinishReason::kLength) request_success_.With({"length"}).Increment();
  if (reason == FinishReason::kPrefilled) request_success_.With({"prefilled"}).Increment();
}

void EngineMetrics::CountRejection(AdmissionRejection reason) {
  admission_rejections_.With({RejectionName(reason)}).Increment();
}

}  // namespace annulus
