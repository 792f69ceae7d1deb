#ifndef ANNULUS_SERVER_HTTP_ROUTES_H_
#define ANNULUS_SERVER_HTTP_ROUTES_H_

#include <deque>
#include <span>
#include <string>
#include <variant>

#include "absl/strings/string_view.h"
#include "server/generation/service_context.h"
#include "server/http/answer_form.h"
#include "server/http/http_message.h"

namespace annulus::server {

// Answers at once, on the listener's thread. `rest`: what stands for "*" in the route's path.
using AnswerNow = absl::StatusOr<HttpAnswer> (*)(ServiceContext& context, absl::string_view rest);

// What a WorkHandler may use.
struct HttpWork {
  ServiceContext& context;
  const Caller& caller;
  CallMemory& memory;            // holds the body's memory; the answer's must be held as kKept
  absl::string_view rest = {};   // what stands for "*" in the route's path
  absl::string_view query = {};  // HttpRequest::query
};
// Reads a body and makes the answer, in the pool. Holds memory before it allocates, and ends early
// if `cancel` is set. Errors name the fields of the body.
using WorkHandler = absl::StatusOr<HttpAnswer> (*)(const HttpWork& work,
                                                   const std::deque<std::string>& body,
                                                   const CancelFlag& cancel);

// Replays the stream of an earlier request: see GenerationExchange::Asked::Replay.
struct ReplayRoute {};

// Takes a form with a file: see UploadExchange.
struct FileUpload {};

// Sends a stored document: see DownloadExchange.
struct FileDownload {};

// Sends a file of the page for people, with --http-page: see AnswerPageFile.
struct PageFileRoute {};

// A route: its path is also the call's name in the table of roles, in metrics and in the log. To
// add one that answers with a generation, write a FormReader and its AnswerForm, a row here and a
// row in call_roles.cc.
struct Route {
  absl::string_view method;
  absl::string_view path;  // a "*" stands for any text that is not empty
  std::variant<AnswerNow, FormReader, WorkHandler, FileUpload, FileDownload, ReplayRoute,
               PageFileRoute>
      handler;
  bool for_probes = false;  // open to everybody
};

std::span<const Route> AllRoutes();

// Returns the route for a path, and what its "*" stands for; null if there is none. If several have
// the path, the one for `method`, or else the first.
const Route* FindRoute(absl::string_view method, absl::string_view path, absl::string_view& rest);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ROUTES_H_
