#ifndef ANNULUS_SERVER_GRPC_TRACE_EXPORT_H_
#define ANNULUS_SERVER_GRPC_TRACE_EXPORT_H_

#include <memory>
#include <string>

#include "server/grpc/otlp_client.h"
#include "server/log/log.h"
#include "server/traces/span_queue.h"

namespace annulus::server {

// Spans on their way to the collector of --otlp-endpoint.
class TraceExport {
 public:
  // `endpoint`: HOST:PORT. Null if it is empty. `log` must outlive the object.
  static std::unique_ptr<TraceExport> Make(const std::string& endpoint, const Logger& log);
  TraceExport(const std::string& endpoint, const Logger& log);

  SpanQueue& spans() { return spans_; }
  // Warns each time that sending begins to fail. Call it on one thread, now and then.
  void WarnIfFailing();

 private:
  const std::string endpoint_;
  const Logger& log_;
  OtlpClient client_;
  SpanQueue spans_;
  bool said_ = false;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_TRACE_EXPORT_H_
