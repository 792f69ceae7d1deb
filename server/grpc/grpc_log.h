#ifndef ANNULUS_SERVER_GRPC_GRPC_LOG_H_
#define ANNULUS_SERVER_GRPC_GRPC_LOG_H_

#include "server/config/server_config.h"

namespace annulus::server {

// Has gRPC's own log lines of errors written to standard error in our format, for the rest of the
// process, if `level` is kDebug; otherwise drops them, because clients can cause any number of
// them.
void UseGrpcLog(LogLevel level);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_GRPC_LOG_H_
