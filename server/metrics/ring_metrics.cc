#include "server/metrics/ring_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

using Type = MetricFamily::Type;
using Labels = std::vector<std::pair<std::string, std::string>>;

MetricSample Sample(Labels labels, double value) {
  MetricSample sample;
  sample.labels = std::move(labels);
  sample.value = value;
  return sample;
}

MetricFamily Epoch(uint64_t epoch) {
  return {"annulus_epoch",
          "How often the ring between processes has formed; 0: it has not.",
          Type::kGauge,
          {Sample({}, static_cast<double>(epoch))}};
}

}  // namespace

std::vector<MetricFamily> RingMetrics(const EngineLoad& load, bool waits) {
  const RingLoad& ring = load.ring;
  int lost = 0;
  MetricFamily up = {"annulus_worker_up",
                     "1 while the worker hosts its ranks, 0 once it is lost.",
                     Type::kGauge,
                     {}};
  MetricFamily silence = {"annulus_worker_silence_seconds",
                          "Time since the worker last said anything; it does so every 0.25 s.",
                          Type::kGauge,
                          {}};
  MetricFamily exposed = {"annulus_worker_exposed_seconds_total",
                          "Time that the worker's ranks waited for others with nothing to compute, "
                          "summed over its ranks.",
                          Type::kCounter,
                          {}};
  for (const WorkerLoad& worker : ring.workers) {
    const Labels name = {{"worker", worker.name}};
    if (worker.lost) ++lost;
    up.samples.push_back(Sample(name, worker.lost ? 0 : 1));
    silence.samples.push_back(Sample(name, worker.silent_seconds));
    exposed.samples.push_back(Sample(name, worker.exposed_seconds));
  }
  const int all = static_cast<int>(ring.workers.size());
  const MetricFamily workers = {
      "annulus_workers",
      "Workers that host ranks of this server's ring, by state: up or lost.",
      Type::kGauge,
      {Sample({{"state", "up"}}, all - lost), Sample({{"state", "lost"}}, lost)}};
  const MetricFamily incomplete = {
      "annulus_ring_incomplete",
      "1 while the server waits for workers to host ranks, and cannot serve.",
      Type::kGauge,
      {Sample({}, waits ? 1 : 0)}};
  const MetricFamily rate = {
      "annulus_link_bytes_per_second",
      "What a rank can send to others, as measured when the ring between processes last formed; 0: "
      "it was not.",
      Type::kGauge,
      {Sample({}, ring.epoch > 0 ? load.exchange.link_bytes_per_second : 0)}};
  const MetricFamily latency = {"annulus_link_message_seconds",
                                "How long a small message between ranks takes, measured likewise.",
                                Type::kGauge,
                                {Sample({}, ring.epoch > 0 ? load.exchange.message_seconds : 0)}};
  return {Epoch(ring.epoch), workers, incomplete, up, silence, exposed, rate, latency};
}

std::vector<MetricFamily> WorkerMetrics(const WorkerStatus& worker) {
  MetricFamily memory = {"annulus_worker_rank_memory_bytes",
                         "Memory of a rank that this worker hosts, by purpose.",
                         Type::kGauge,
                         {}};
  for (const HostedRank& rank : worker.ranks) {
    for (const auto& [kind, bytes] : rank.memory_bytes) {
      memory.samples.push_back(
          Sample({{"rank", absl::StrCat(rank.rank)}, {"kind", kind}}, static_cast<double>(bytes)));
    }
  }
  return {{"annulus_worker_connected",
           "1 while this worker has a coordinator.",
           Type::kGauge,
           {Sample({}, worker.connected ? 1 : 0)}},
          Epoch(worker.epoch),
          {"annulus_worker_steps_total",
           "Steps that the ranks of this worker have ended.",
           Type::kCounter,
           {Sample({}, static_cast<double>(worker.steps))}},
          {"annulus_worker_wait_seconds_total",
           "Time that this worker, in a ring, had no step to run: there was none, or its "
           "coordinator was late.",
           Type::kCounter,
           {Sample({}, worker.waited_seconds)}},
          memory};
}

}  // namespace annulus::server
