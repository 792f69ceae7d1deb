#include "server/traces/span.h"

#include <sys/random.h>

#include <algorithm>
#include <cstddef>

#include "absl/strings/escaping.h"
#include "kernels/base/check.h"

namespace annulus::server {
namespace {

constexpr size_t kTraceBytes = 16, kSpanBytes = 8;

std::string NewId(size_t bytes) {
  std::string id(bytes, '\0');
  // Cannot fail for so few bytes once the system has booted.
  ANNULUS_CHECK(getrandom(id.data(), bytes, 0) == static_cast<ssize_t>(bytes));
  return id;
}

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(std::max(seconds, 0.0)));
}

// Spans of phases, one behind the other.
class Phases {
 public:
  Phases(const Span& call, Span::Time begin, std::vector<Span>& spans)
      : trace_(call.trace), parent_(call.id), end_(call.end), at_(begin), spans_(spans) {}

  // Leaves out phases that took no time.
  Span* Add(const char* name, double seconds) {
    const Span::Time begin = at_;
    at_ = std::min(at_ + std::chrono::duration_cast<Span::Time::duration>(Seconds(seconds)), end_);
    if (at_ == begin) return nullptr;
    return &spans_.emplace_back(Span{.trace = trace_,
                                     .id = NewId(kSpanBytes),
                                     .parent = parent_,
                                     .name = name,
                                     .begin = begin,
                                     .end = at_,
                                     .attributes = {},
                                     .error = ""});
  }

 private:
  const std::string trace_, parent_;
  const Span::Time end_;
  Span::Time at_;
  std::vector<Span>& spans_;
};

}  // namespace

std::vector<Span> SpansOf(const EndedGeneration& generation, std::chrono::nanoseconds duration,
                          Span::Time end) {
  const TraceParent& parent = generation.call.trace;
  if (!parent.sampled) return {};
  const auto length = std::chrono::duration_cast<Span::Time::duration>(duration);
  Span call{
      .trace = parent.trace.empty() ? NewId(kTraceBytes) : absl::HexStringToBytes(parent.trace),
      .id = NewId(kSpanBytes),
      .parent = absl::HexStringToBytes(parent.span),
      .name = std::string(generation.call.method),
      .is_call = true,
      .begin = end - length,
      .end = end,
      .attributes = {},
      .error = std::string(generation.error)};
  const Usage& usage = generation.completion.usage;
  const Timings& timings = generation.completion.timings;
  const auto text = [](absl::string_view value) { return Span::Value(std::string(value)); };
  call.attributes = {{"gen_ai.request.model", text(generation.model)},
                     {"gen_ai.response.id", text(generation.request_id)},
                     {"gen_ai.usage.input_tokens", usage.prompt_tokens},
                     {"gen_ai.usage.output_tokens", usage.completion_tokens},
                     {"annulus.cached_tokens", usage.cached_tokens},
                     {"annulus.preemptions", timings.preemptions},
                     {"annulus.tenant", text(generation.call.caller.tenant.name())}};
  std::vector<Span> spans = {std::move(call)};
  // The engine had the request up to the end; what came before is the server's own work.
  const auto in_engine = std::chrono::duration_cast<Span::Time::duration>(Seconds(timings.total));
  Phases phases(spans[0], end - std::min(in_engine, length), spans);
  phases.Add("queue", timings.queue);
  if (Span* const prefill = phases.Add("prefill", timings.prefill)) {
    prefill->attributes = {{"annulus.restored_tokens", usage.restored_tokens},
                           {"annulus.host_tokens", usage.host_tokens}};
  }
  phases.Add("decode", timings.decode);
  return spans;
}

}  // namespace annulus::server
