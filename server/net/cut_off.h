#ifndef ANNULUS_SERVER_NET_CUT_OFF_H_
#define ANNULUS_SERVER_NET_CUT_OFF_H_

#include <cstdint>

namespace annulus::server {

// Why the relay closed a connection.
enum class CutOff : uint8_t {
  kHeaders,  // a header block is too long, or the bytes are not HTTP/2
  kMemory,   // gRPC keeps too much for open calls, and this client has most of them
  kSlow,     // the first message of a call came too slowly
  kFlood,    // too many frames that carry no message, or too many open calls
  kUnread,   // the client does not read
  kRefused,  // too many calls without a valid identity or to unknown methods
  kRoom,     // there were as many connections as there may be, and its client had most of them
};
inline constexpr int kCutOffKinds = 7;

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_CUT_OFF_H_
