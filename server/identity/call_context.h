#ifndef ANNULUS_SERVER_IDENTITY_CALL_CONTEXT_H_
#define ANNULUS_SERVER_IDENTITY_CALL_CONTEXT_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/identity/credentials.h"
#include "server/identity/peer_book.h"

namespace annulus::server {

// The span of a client that a call belongs to (W3C Trace Context).
struct TraceParent {
  std::string trace;    // 32 hexadecimal digits; empty: the client names none
  std::string span;     // 16
  bool sampled = true;  // whether the client records its own spans
};

// Reads the value of a header `traceparent`; nothing if it is malformed.
TraceParent ParseTraceParent(absl::string_view header);

// One call as the server sees it, whichever transport carried it. The transport fills it in when
// the call arrives; ServiceContext::Admit sets the caller and drops the headers. Constant
// afterwards.
struct CallContext {
  using Header = std::pair<std::string, std::string>;  // name in lower case, value

  absl::string_view method;  // the method's name, a literal: "Generate"
  // ADDRESS:PORT of the client: "ipv4:127.0.0.1:4567". See AddressOf.
  std::string peer = {};
  PeerBook::Number connection = 0;   // 0: PeerBook does not count its calls
  std::vector<Header> headers = {};  // in the order of the transport
  // Names in the client's certificate, which the listener has verified; empty if it has none.
  std::vector<std::string> certificate_names = {};
  SteadyTime deadline = SteadyTime::max();  // may be in the past
  TraceParent trace = {};
  Caller caller = {};
  bool admitted = false;  // ServiceContext::Admit has let it in

  // The value of the first header with this name; null if there is none.
  const std::string* FindHeader(absl::string_view name) const;
  size_t CountHeaders(absl::string_view name) const;
  // Size of all headers, counted as in HTTP/2: 32 bytes more for each.
  size_t header_bytes() const;
};

// Names the client whose share of a common resource the call uses: the tenant; for callers without
// an identity, the address without the port.
std::string ClientOf(const CallContext& call);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_CALL_CONTEXT_H_
