#include "server/http/page/page_files.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

// The page may use nothing but its own files and this server's API, and no other page may show it.
constexpr absl::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

absl::string_view TypeOf(absl::string_view name) {
  if (absl::EndsWith(name, ".css")) return "text/css; charset=utf-8";
  if (absl::EndsWith(name, ".js")) return "text/javascript; charset=utf-8";
  return "text/html; charset=utf-8";
}

}  // namespace

const PageFile* FindPageFile(absl::string_view name) {
  if (name.empty()) name = "page.html";
  const std::span<const PageFile> files = PageFiles();
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  return file == files.end() ? nullptr : &*file;
}

HttpAnswer AnswerPageFile(const PageFile& file, absl::string_view if_none_match) {
  HttpAnswer answer{.content_type = std::string(TypeOf(file.name))};
  answer.headers = {absl::StrCat("Content-Security-Policy: ", kPolicy),
                    "X-Content-Type-Options: nosniff", "Referrer-Policy: no-referrer",
                    // Files of two versions must not be used together for long.
                    "Cache-Control: no-cache", absl::StrCat("ETag: ", file.etag)};
  if (absl::StrContains(if_none_match, file.etag)) {
    answer.status = 304;
  } else {
    answer.body = std::string(file.text);
  }
  return answer;
}

}  // namespace annulus::server
