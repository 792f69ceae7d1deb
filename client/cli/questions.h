#ifndef ANNULUS_CLIENT_CLI_QUESTIONS_H_
#define ANNULUS_CLIENT_CLI_QUESTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"

namespace annulus {

inline constexpr int kMostQuestions = 1000;

// The questions of a file's text: one a line, empty lines aside; or, if the first of them begins
// with '{', JSON objects with a text "question". INVALID_ARGUMENT with the line for what is
// neither, and for none or more than kMostQuestions.
absl::StatusOr<std::vector<std::string>> ParseQuestions(absl::string_view text);

// Asks all of them about the documents of `base`, a question as yet without its message, several at
// a time: the documents are read once. Answers are printed in the order of the questions, each
// under its question, or as JSON lines with "index" (from 0) and "question". One that fails ends
// alone. Returns the exit code: 3 if some failed.
int AskQuestions(Session& session, const v1::GenerationSpec& base,
                 const std::vector<std::string>& questions, bool timings);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_QUESTIONS_H_
