#ifndef ANNULUS_CLIENT_CLI_ASK_ASK_MANY_H_
#define ANNULUS_CLIENT_CLI_ASK_ASK_MANY_H_

#include <functional>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"
#include "client/generation.h"

namespace annulus::client {

// A request of AskMany that has ended, with success or failure.
struct Asked {
  size_t index = 0;  // into the requests
  Generation generation;
};

struct AskManyOptions {
  int concurrency = 4;              // requests at a time; values below 1 count as 1
  const char* phase = "Answering";  // name shown with the progress
  int64_t done_before = 0;          // further items that progress counts as done already
  // Tokens of each request's prompt. If given, progress counts tokens that are read, in place of
  // requests that have ended.
  std::vector<int64_t> tokens{};
  // Start the other requests only when the answer to the first begins, so that they reuse the
  // prompt that it has read.
  bool first_alone = false;
  // The server has served a request before this call. If it is lost then, the requests are tried
  // again.
  bool served_before = false;
};

// Runs all requests, `concurrency` at a time, starting them in order; shows progress. Calls `take`
// on the calling thread for every request that ends, in the order in which they end.
// - If `take` returns false, starts no more requests, cancels the running ones and returns OK.
// - Tries a request again if the server refuses it and says when to retry, or if the server is lost
//   after it has served one. Gives up after 6 tries, not counting those that were refused while the
//   server was busy with others of these requests.
// - If the user interrupts, or after a failure that would meet all other requests too (IsForAll),
//   cancels the running requests, calls `take` for those that are complete already, and returns
//   that status. Otherwise returns OK.
grpc::Status AskMany(Session& session, const std::vector<v1::GenerationSpec>& requests,
                     const AskManyOptions& options, const std::function<bool(Asked)>& take);

// Whether this failure would meet every other request too: the server cannot be reached, does not
// have the call, or rejects the caller.
bool IsForAll(const grpc::Status& status);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_ASK_MANY_H_
