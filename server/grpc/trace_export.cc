#include "server/grpc/trace_export.h"

#include <chrono>
#include <utility>
#include <vector>

namespace annulus::server {

std::unique_ptr<TraceExport> TraceExport::Make(const std::string& endpoint, const Logger& log) {
  return endpoint.empty() ? nullptr : std::make_unique<TraceExport>(endpoint, log);
}

TraceExport::TraceExport(const std::string& endpoint, const Logger& log)
    : endpoint_(endpoint),
      log_(log),
      client_(endpoint),
      spans_(
          SpanQueue::Options(),
          [this](const std::vector<Span>& spans, std::chrono::milliseconds most) {
            return client_.Send(spans, most);
          },
          [this] { client_.Cancel(); }) {}

void TraceExport::WarnIfFailing() {
  const absl::Status state = spans_.state();
  if (state.ok() || std::exchange(said_, true)) {
    said_ = !state.ok();
    return;
  }
  log_.Warning("traces_not_sent",
               {{"endpoint", endpoint_},
                {"reason", state.ToString()},
                {"advice",
                 "answers are not affected; the newest spans are dropped while none are taken. "
                 "Check that an OTLP collector listens for gRPC there"}});
}

}  // namespace annulus::server
