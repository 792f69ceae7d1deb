#ifndef ANNULUS_CLIENT_CLI_ASK_ANSWER_H_
#define ANNULUS_CLIENT_CLI_ASK_ANSWER_H_

#include <functional>
#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"
#include "client/format/json.h"
#include "client/generation.h"

namespace annulus::client {

struct AnswerOptions {
  bool timings = false;     // a summary on standard error
  bool json_lines = false;  // each event as a JSON object on a line of its own
  std::string output;       // file for the answer; empty: standard output
  // With GenerationSpec.evidence: what people call the request's documents, in order.
  std::vector<std::string> titles{};
  // For a page (WantsPage): the question, and the documents' texts; an empty one is not known here.
  std::string question{};
  std::vector<std::string> texts{};
  // Adds members to the object of --json, given the answer's text. May be empty.
  std::function<void(const std::string& text, JsonWriter& json)> more_members{};
};

// Runs a generation and writes the answer: to standard output as it arrives; with --json as one
// JSON object at the end; with `output` to the file at the end. Progress goes to standard error.
// After a failure or an interruption, writes the part that had arrived. `text`, unless null,
// receives the answer's text, complete or not. Returns the exit code.
int Answer(Session& session, const v1::GenerationSpec& spec, const AnswerOptions& options,
           std::string* text = nullptr);

// The JSON object of --json. `finish_reason` is "stop", "length", "cancelled" or "error", or
// "unknown" for reasons that only newer servers have. Fields that a failed generation cannot know
// are null.
std::string AnswerJson(const Generation& generation, bool interrupted,
                       const AnswerOptions& options = {});

// Explains to people why no more of a prompt was reused: "ends: .." or "none: ..", or empty for a
// reason that only newer servers have.
std::string MissText(const v1::CacheMiss& miss);

// Show that a prompt waits or how far it is read, for an answer or for a document's prefill.
void ShowWaiting(Session& session, const v1::Queued& queued);
void ShowReading(Session& session, const v1::PromptProgress& progress);

// The lines of --timings; values begin at column kTimingsIndent.
inline constexpr int kTimingsIndent = 11;
std::string TimingsText(const v1::Completion& completion);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_ASK_ANSWER_H_
