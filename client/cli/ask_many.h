#ifndef ANNULUS_CLIENT_CLI_ASK_MANY_H_
#define ANNULUS_CLIENT_CLI_ASK_MANY_H_

#include <functional>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"
#include "client/generation.h"

namespace annulus {

// One of AskMany, once it has ended.
struct Asked {
  size_t index = 0;  // in the requests
  Generation generation;
};

struct AskManyOptions {
  int concurrency = 4;
  const char* phase = "Answering";  // in progress
  int64_t done_before = 0;          // of all, what is shown as done already
  // The others wait until the first one's answer begins: they share what it reads.
  bool first_alone = false;
  bool served_before = false;  // the server has served something: if it is lost, it may come back
};

// Runs all requests, a few at a time, in order of their start; shows progress. `take` is called in
// the calling thread, in the order in which they end; if it returns false nothing more is begun,
// and what runs is cancelled. A refusal with a time to come back is obeyed: as long as others of
// these requests are served, and a few times more, before it counts as a failure; and so is a
// server that cannot be reached after it had served one. Ends early, with what ran cancelled, if
// the user interrupts, and if a failure would meet all others too (IsForAll). Returns the status of
// such a failure, else OK.
grpc::Status AskMany(Session& session, const std::vector<v1::GenerationSpec>& requests,
                     const AskManyOptions& options, const std::function<bool(Asked)>& take);

// The server cannot be reached or the caller is not let in: no other request would fare better.
bool IsForAll(const grpc::Status& status);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ASK_MANY_H_
