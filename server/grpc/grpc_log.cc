#include "server/grpc/grpc_log.h"

#include <grpc/support/log.h>

#include "server/log/log.h"

namespace annulus::server {
namespace {

// gRPC's threads may log until the process ends, so the logger is never destroyed.
void Write(gpr_log_func_args* line) {
  static const Logger* const log = new Logger(LogLevel::kDebug);
  if (line->severity == GPR_LOG_SEVERITY_ERROR) log->Debug("grpc", {{"message", line->message}});
}

void Drop(gpr_log_func_args*) {}

}  // namespace

void UseGrpcLog(LogLevel level) { gpr_set_log_function(level == LogLevel::kDebug ? Write : Drop); }

}  // namespace annulus::server
