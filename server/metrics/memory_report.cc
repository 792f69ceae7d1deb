#include "server/metrics/memory_report.h"

#include <utility>

namespace annulus::server {
namespace {

MetricFamily Gauge(std::string name, std::string help) {
  return {std::move(name), std::move(help), MetricFamily::Type::kGauge, {}};
}

MetricFamily Gauge(std::string name, std::string help, int64_t value) {
  MetricFamily family = Gauge(std::move(name), std::move(help));
  family.samples.emplace_back().value = static_cast<double>(value);
  return family;
}

}  // namespace

std::map<std::string, int64_t> ForeseenMemory(const MemoryForecast& engine, const HeldMost& held) {
  return {{"program", engine.program},
          {"weights", engine.weights},
          {"kv", engine.kv},
          {"kv_host", engine.kv_host},
          {"step", engine.step},
          {"ring", engine.ring},
          {"workspace", engine.workspace},
          {"requests", engine.requests},
          {"documents", static_cast<int64_t>(held.documents)},
          {"replay", static_cast<int64_t>(held.replay)}};
}

std::vector<MetricFamily> MemoryMetrics(const EngineLoad& load, const HeldMost& held) {
  MetricFamily foreseen = Gauge("annulus_memory_foreseen_bytes",
                                "Peak memory of the process predicted at admission, by purpose.");
  for (const auto& [part, bytes] : ForeseenMemory(load.memory, held)) {
    MetricSample& sample = foreseen.samples.emplace_back();
    sample.labels = {{"part", part}};
    sample.value = static_cast<double>(bytes);
  }
  return {std::move(foreseen),
          Gauge("annulus_process_resident_bytes", "Resident memory of the process.",
                load.process.resident),
          Gauge("annulus_process_resident_most_bytes", "Peak resident memory of the process.",
                load.process.resident_most)};
}

}  // namespace annulus::server
