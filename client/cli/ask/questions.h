#ifndef ANNULUS_CLIENT_CLI_ASK_QUESTIONS_H_
#define ANNULUS_CLIENT_CLI_ASK_QUESTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "client/cli/ask/answer.h"
#include "client/cli/session.h"

namespace annulus::client {

inline constexpr int kMostQuestions = 1000;

// Parses a file of questions: one question per line, or, if the first one begins with '{', one JSON
// object with the single key "question" per line. Skips empty lines. INVALID_ARGUMENT, with the
// line, if a line is wrong, or if there are no questions or more than kMostQuestions.
absl::StatusOr<std::vector<std::string>> ParseQuestions(absl::string_view text);

// Asks all questions, several at a time, so that the server reads the documents once. `base` has
// the documents and the system message, but no question. Prints the answers in the order of the
// questions: each under its question, or with --json as one line with "index" (from 0) and
// "question". A question that fails does not affect the others. Of `options`, `timings` and
// `titles` count. Returns the exit code: 3 if some failed, that of the last failure if all did.
int AskQuestions(Session& session, const v1::GenerationSpec& base,
                 const std::vector<std::string>& questions, const AnswerOptions& options);

// The same for questions that share nothing: specs[i] is the whole request of questions[i].
int AskSpecs(Session& session, const std::vector<v1::GenerationSpec>& specs,
             const std::vector<std::string>& questions, const AnswerOptions& options);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_QUESTIONS_H_
