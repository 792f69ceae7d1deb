#ifndef ANNULUS_CLIENT_CLI_ANSWER_H_
#define ANNULUS_CLIENT_CLI_ANSWER_H_

#include <string>

#include "annulus/v1/inference.pb.h"
#include "client/cli/session.h"
#include "client/format/json.h"
#include "client/generation.h"

namespace annulus {

struct AnswerOptions {
  bool timings = false;     // a summary on standard error
  bool json_lines = false;  // each event as a JSON object on a line of its own
  std::string output;       // file for the answer; empty: standard output
};

// Runs a generation. The answer goes to standard output as it comes, or as one JSON object at the
// end, or at the end to a file; progress goes to standard error. What had come before a failure or
// an interruption is kept, and is left in `text` unless that is null. Returns the exit code.
int Answer(Session& session, const v1::GenerationSpec& spec, const AnswerOptions& options,
           std::string* text = nullptr);

// The JSON object of --json. `finish_reason` is "stop", "length", "cancelled" or "error"; what a
// failed generation cannot know is null.
std::string AnswerJson(const Generation& generation, bool interrupted);

// Why no more of a prompt was reused: for people ("ends: ..", empty for what only newer servers
// know), and for programs.
std::string MissText(const v1::CacheMiss& miss);
void WriteMiss(const v1::CacheMiss& miss, JsonWriter& json);

// Progress of a prompt, for an answer or for a document that is read ahead.
void ShowWaiting(Session& session, const v1::Queued& queued);
void ShowReading(Session& session, const v1::PromptProgress& progress);

// The lines of --timings; values begin at column kTimingsIndent.
inline constexpr int kTimingsIndent = 11;
std::string TimingsText(const v1::Completion& completion);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_ANSWER_H_
