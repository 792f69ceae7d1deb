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
  Family<Gauge>& up = set.AddGauges("rank_up", "Whether the rank answers: 1 or 0.", {"rank"});
  Family<Counter>& seconds = set.AddCounters(
      "ring_seconds_total",
      "Seconds that a rank attended (compute), waited for a peer with nothing to attend "
      "(exposed_wait) and handed data over (send).",
      {"rank", "phase"});
  Family<Counter>& bytes = set.AddCounters(
      "ring_bytes_total", "Bytes that a rank handed to its peers, by ring mode.", {"rank", "mode"});
  std::vector<RankMetrics> result;
  for (int i = 0; i < ranks; ++i) {
    const std::string rank = absl::StrCat(i);
    result.push_back({.up = up.With({rank}),
                      .compute_seconds = seconds.With({rank, "compute"}),
                      .exposed_wait_seconds = seconds.With({rank, "exposed_wait"}),
                      .send_seconds = seconds.With({rank, "send"}),
                      .pass_kv_bytes = bytes.With({rank, "pass_kv"}),
                      .pass_q_bytes = bytes.With({rank, "pass_q"})});
  }
  return result;
}

}  // namespace

EngineMetrics::EngineMetrics(int rank_count, const ModelInfo& model)
    : ranks(MakeRanks(rank_count, set_)) {
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
}

void EngineMetrics::CountRejection(AdmissionRejection reason) {
  admission_rejections_.With({RejectionName(reason)}).Increment();
}

}  // namespace annulus
