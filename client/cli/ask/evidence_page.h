#ifndef ANNULUS_CLIENT_CLI_ASK_EVIDENCE_PAGE_H_
#define ANNULUS_CLIENT_CLI_ASK_EVIDENCE_PAGE_H_

#include <string>

#include "client/cli/ask/answer.h"
#include "client/generation.h"

namespace annulus::client {

// Whether `options` asks for an answer with evidence as a page: a file whose name ends in ".html".
bool WantsPage(const v1::GenerationSpec& spec, const AnswerOptions& options);

// The page: see AnswerPageHtml. Uses `question`, `titles` and `texts` of the options.
std::string EvidencePage(const Generation& generation, const AnswerOptions& options);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_EVIDENCE_PAGE_H_
