#include "server/identity/call_context.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "server/base/peer_address.h"

namespace annulus::server {
namespace {

constexpr size_t kHeaderOverhead = 32;

}  // namespace

const std::string* CallContext::FindHeader(absl::string_view name) const {
  for (const auto& [header, value] : headers) {
    if (header == name) return &value;
  }
  return nullptr;
}

size_t CallContext::CountHeaders(absl::string_view name) const {
  return static_cast<size_t>(std::count_if(headers.begin(), headers.end(),
                                           [&](const Header& each) { return each.first == name; }));
}

size_t CallContext::header_bytes() const {
  size_t bytes = 0;
  for (const auto& [name, value] : headers) bytes += name.size() + value.size() + kHeaderOverhead;
  return bytes;
}

TraceParent ParseTraceParent(absl::string_view header) {
  constexpr size_t kTraceBegin = 3, kTraceDigits = 32, kSpanBegin = 36, kSpanDigits = 16;
  constexpr size_t kLastFlag = 54, kLength = 55;
  if (header.size() != kLength || header.substr(0, 2) == "ff") return {};
  for (size_t i = 0; i < header.size(); ++i) {
    const bool dash = i == 2 || i == 35 || i == 52;
    const char c = header[i];
    const bool digit = absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
    if (dash ? c != '-' : !digit) return {};
  }
  const auto all_zero = [](absl::string_view digits) {
    return digits.find_first_not_of('0') == absl::string_view::npos;
  };
  const absl::string_view trace = header.substr(kTraceBegin, kTraceDigits);
  const absl::string_view span = header.substr(kSpanBegin, kSpanDigits);
  if (all_zero(trace) || all_zero(span)) return {};
  constexpr absl::string_view kOdd = "13579bdf";  // the lowest bit is the flag
  return {std::string(trace), std::string(span),
          kOdd.find(header[kLastFlag]) != absl::string_view::npos};
}

std::string ClientOf(const CallContext& call) {
  const TenantId& tenant = call.caller.tenant;
  if (tenant != TenantId()) return absl::StrCat("tenant:", tenant.name());
  return AddressOf(call.peer);
}

}  // namespace annulus::server
