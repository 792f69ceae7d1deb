#ifndef ANNULUS_SERVER_TRACES_SPAN_H_
#define ANNULUS_SERVER_TRACES_SPAN_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/identity/call_context.h"

namespace annulus::server {

// A stretch of a call's time, as OpenTelemetry describes one.
struct Span {
  using Time = std::chrono::system_clock::time_point;
  using Value = std::variant<std::string, int64_t>;

  std::string trace;   // 16 bytes
  std::string id;      // 8 bytes
  std::string parent;  // 8 bytes; empty: none
  std::string name;
  bool is_call = false;  // a whole call, and not a phase of one
  Time begin, end;
  std::vector<std::pair<absl::string_view, Value>> attributes;  // names are literals
  std::string error;                                            // empty: it went well
};

// A generation that has ended.
struct EndedGeneration {
  const CallContext& call;
  absl::string_view model;
  absl::string_view request_id;
  const Completion& completion;
  absl::string_view error;  // the status code that the client gets; empty: OK
};

// The spans of a generation: that of the call, which took `duration` and ended at `end`, and in it
// those of its phases: "queue", "prefill" and "decode", by the engine's timings. Attributes have
// the names of OpenTelemetry's conventions for generative AI where there are any. Nothing if the
// client does not record its own spans. Ids are random.
std::vector<Span> SpansOf(const EndedGeneration& generation, std::chrono::nanoseconds duration,
                          Span::Time end);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_TRACES_SPAN_H_
