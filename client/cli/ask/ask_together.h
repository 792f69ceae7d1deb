#ifndef ANNULUS_CLIENT_CLI_ASK_ASK_TOGETHER_H_
#define ANNULUS_CLIENT_CLI_ASK_ASK_TOGETHER_H_

#include <functional>
#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/ask/ask_many.h"
#include "client/cli/session.h"

namespace annulus::client {

// The outcome of AskTogether.
struct AskedTogether {
  // Not OK if the user interrupted, or after a failure that would meet all other requests too
  // (IsForAll).
  grpc::Status status;
  // Indices, ascending, of the questions that the caller should now ask one by one: all if the
  // server has no AskMany, else those that it refused for now or lost.
  std::vector<size_t> left;
  bool served = false;  // the server has begun at least one question
};

// Asks all questions in one AskMany call of the API, each after the documents and messages of
// `shared`; shows progress. Calls `take`, as AskMany() does, for every question that is not in
// `left`. With --timeout, which limits each question by itself, makes no call and leaves all
// questions.
AskedTogether AskTogether(Session& session, const v1::GenerationSpec& shared,
                          const std::vector<std::string>& questions,
                          const std::function<bool(Asked)>& take);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_ASK_TOGETHER_H_
