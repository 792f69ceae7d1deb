#ifndef ANNULUS_SERVER_HTTP_PAGE_PAGE_FILES_H_
#define ANNULUS_SERVER_HTTP_PAGE_PAGE_FILES_H_

#include <span>

#include "absl/strings/string_view.h"
#include "server/http/http_message.h"

namespace annulus::server {

// A file of the page for people (--http-page). The files are compiled in and hold no data of
// anybody, so everybody may have them.
struct PageFile {
  absl::string_view name;  // "page.css"
  absl::string_view etag;  // with its quotes
  absl::string_view text;  // UTF-8
};

// All files; page.html is the page itself. Made by embed.cmake from the files in this folder.
std::span<const PageFile> PageFiles();

// The page's file with this name; empty: the page itself. Null if there is none.
const PageFile* FindPageFile(absl::string_view name);

// Answers a request for the file: 304 without a body if `if_none_match`, the header of that name,
// has its etag.
HttpAnswer AnswerPageFile(const PageFile& file, absl::string_view if_none_match);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_PAGE_PAGE_FILES_H_
