#ifndef ANNULUS_CLIENT_CLI_ASK_ASK_IN_PARTS_H_
#define ANNULUS_CLIENT_CLI_ASK_ASK_IN_PARTS_H_

#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "annulus/v1/model.pb.h"
#include "client/cli/ask/answer.h"
#include "client/cli/input/provide.h"
#include "client/cli/session.h"

namespace annulus::client {

struct AskInPartsOptions {
  v1::GenerationSpec spec;  // without input and documents
  std::string system;       // system message before each question; empty: none
  AnswerOptions answer;
  std::string journal;                // see PartJournalPath
  bool is_file_of_questions = false;  // answers are printed as AskQuestions prints them
};

// Answers questions about documents that are longer than the model's context: asks each question
// about parts that fit, finds the passages that the answers rest on, and asks the question again
// about the best of them. Says so before it reads, with the number of parts and an estimate of the
// time, and names the places of the passages afterwards. If the user interrupts, prints what was
// found so far. `gathered` has the tokens of every document. Returns the exit code.
int AskInParts(Session& session, const v1::Model& model, const AskInPartsOptions& options,
               GatheredDocuments gathered, const std::vector<std::string>& questions);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_ASK_IN_PARTS_H_
