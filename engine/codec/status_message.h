#ifndef ANNULUS_ENGINE_CODEC_STATUS_MESSAGE_H_
#define ANNULUS_ENGINE_CODEC_STATUS_MESSAGE_H_

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "annulus/internal/v1/step.pb.h"

namespace annulus::codec {

// Statuses as messages, with their payloads. A status of another process is not trusted, and it
// goes on to other processes, to logs and to clients. So FromMessage keeps only the first
// kMostStatusBytes of its text. Of its first kMostStatusPayloads payloads it drops those that are
// longer than kMostStatusBytes, and it drops all later ones.
inline constexpr size_t kMostStatusBytes = 4096;
inline constexpr int kMostStatusPayloads = 8;

inline internal::v1::Status ToMessage(const absl::Status& status) {
  internal::v1::Status message;
  message.set_code(static_cast<int32_t>(status.code()));
  message.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view name, const absl::Cord& payload) {
    internal::v1::Payload& added = *message.add_payloads();
    added.set_name(std::string(name));
    added.set_value(std::string(payload));
  });
  return message;
}

// Unknown codes become UNKNOWN, as in absl::Status.
inline absl::Status FromMessage(const internal::v1::Status& message) {
  const absl::string_view text = message.message();
  absl::Status status(static_cast<absl::StatusCode>(message.code()),
                      text.substr(0, kMostStatusBytes));
  for (int i = 0; i < std::min(message.payloads_size(), kMostStatusPayloads); ++i) {
    const internal::v1::Payload& payload = message.payloads(i);
    if (payload.name().size() + payload.value().size() > kMostStatusBytes) continue;
    status.SetPayload(payload.name(), absl::Cord(payload.value()));
  }
  return status;
}

}  // namespace annulus::codec

#endif  // ANNULUS_ENGINE_CODEC_STATUS_MESSAGE_H_
