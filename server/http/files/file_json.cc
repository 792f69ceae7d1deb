#include "server/http/files/file_json.h"

#include <sys/random.h>

#include <array>
#include <chrono>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "server/http/json/json_text.h"

namespace annulus::server {

std::string NewFileId() {
  std::array<char, 16> bytes;
  // Cannot fail for so few bytes once the system has booted.
  ANNULUS_CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  return absl::StrCat("file-",
                      absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size())));
}

namespace {

std::string KeptJson(const KeptDocument& kept) {
  return absl::StrCat(",\"memory_tokens\":", kept.memory_tokens,
                      ",\"host_tokens\":", kept.host_tokens, ",\"disk_tokens\":", kept.disk_tokens,
                      ",\"pinned\":", kept.pinned ? "true" : "false");
}

}  // namespace

std::string FileJson(const StoredDocument& document, const KeptDocument* kept) {
  const auto age = std::chrono::steady_clock::now() - document.stored_at;
  const auto stored = std::chrono::system_clock::now() - age;
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(stored.time_since_epoch()).count();
  const std::string& name = document.title.empty() ? document.name : document.title;
  // Anthropic's SDK reads the time from seconds, too.
  return absl::StrCat(
      "{\"id\":", JsonString(document.name),
      ",\"object\":\"file\",\"type\":\"file\",\"created_at\":", seconds,
      ",\"filename\":", JsonString(name), ",\"bytes\":", document.size_bytes,
      ",\"size_bytes\":", document.size_bytes,
      ",\"mime_type\":\"text/plain\",\"downloadable\":", document.has_bytes ? "true" : "false",
      ",\"purpose\":\"user_data\",\"status\":\"processed\",\"expires_at\":null",
      ",\"annulus\":{\"tokens\":", document.tokens.size(), kept == nullptr ? "" : KeptJson(*kept),
      "}}");
}

}  // namespace annulus::server
