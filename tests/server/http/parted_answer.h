#ifndef ANNULUS_TESTS_SERVER_HTTP_PARTED_ANSWER_H_
#define ANNULUS_TESTS_SERVER_HTTP_PARTED_ANSWER_H_

#include <string>
#include <utility>
#include <vector>

#include "tests/server/fake_engine.h"

namespace annulus::server {

// An answer with reasoning, text and two calls, as the engine parts it.
inline FakeScript PartedAnswer() {
  FakeScript script;
  Delta begin;
  begin.reasoning = "Hm, \"so\".";
  Delta text;
  text.text = "I look.";
  Delta first;
  first.calls = {{0, "abc123xyz", "search", ""}, {0, "", "", "{\"q\": "}};
  Delta second;
  second.calls = {{0, "", "", "\"x\"}"}, {1, "def456uvw", "now", "{}"}};
  script.parts = {begin, text, first, second};
  script.completion.calls = {{"abc123xyz", "search", "{\"q\": \"x\"}"}, {"def456uvw", "now", "{}"}};
  script.completion.usage.reasoning_tokens = 3;
  return script;
}

// A part of an answer's text, with the evidence of the sentences that it ends.
inline Delta TextPart(const std::string& text, std::vector<SentenceEvidence> evidence = {}) {
  Delta part;
  part.text = text;
  part.evidence = std::move(evidence);
  return part;
}

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_HTTP_PARTED_ANSWER_H_
