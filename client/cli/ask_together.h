#ifndef ANNULUS_CLIENT_CLI_ASK_TOGETHER_H_
#define ANNULUS_CLIENT_CLI_ASK_TOGETHER_H_

#include <functional>
#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/ask_many.h"
#include "client/cli/session.h"

namespace annulus {

// What came of AskTogether.
struct AskedTogether {
  // Not OK: the user interrupted, or a failure that would meet any other request too (IsForAll).
  grpc::Status status;
  // The questions, ascending, that may be asked one by one now: all of them if the server has no
  // AskMany, else those that it refused for a while or lost.
  std::vector<size_t> left;
  bool served = false;  // the server has begun at least one
};

// Asks all questions after what `shared` says in one call of AskMany; shows progress. `take`: as
// for AskMany, and called for every question that is not left. With --timeout, which is for each
// question, all are left.
AskedTogether AskTogether(Session& session, const v1::GenerationSpec& shared,
                          const std::vector<std::string>& questions,
                          const std::function<bool(Asked)>& take);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ASK_TOGETHER_H_
