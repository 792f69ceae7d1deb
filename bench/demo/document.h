#ifndef ANNULUS_BENCH_DEMO_DOCUMENT_H_
#define ANNULUS_BENCH_DEMO_DOCUMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus::bench {

// The builtin recall model recognises a place in the document by this many bytes before it
// (kRecallContext of engine/model/made/recall_model.h).
inline constexpr int kDemoContextBytes = 8;

struct DemoOptions {
  int64_t bytes = 1'000'000;  // exact size of the document; 1..10^9
  uint64_t seed = 7;
  std::vector<double> depths = {0.01, 0.33, 0.99};  // one planted fact each, 0..1 of the document
};

// One record of the document: cue + answer + '\n'.
struct DemoFact {
  double depth = 0;    // as requested
  int64_t offset = 0;  // of the cue's first byte; at or shortly before depth * bytes
  std::string cue;     // append it to the document to ask for the answer
  std::string answer;  // what follows the cue, up to the end of the line
};

struct DemoDocument {
  std::string text;             // printable ASCII, one record per line, ends with '\n'
  std::vector<DemoFact> facts;  // in ascending order of offset
};

// Writes a document of invented records with planted facts. Deterministic in `options` on every
// machine.
//
// Guarantee: for every answer byte of a fact, and for the line end after the answer, the
// kDemoContextBytes bytes before it occur only once in the document. The same holds in text + cue +
// answer, up to the byte being answered. So a model that copies what followed the same context
// continues text + cue with exactly `answer` and a line end.
//
// INVALID_ARGUMENT if a size or depth is out of range, if the facts do not fit in `bytes` (with
// both numbers), or if there are more than 1000 facts.
absl::StatusOr<DemoDocument> MakeDemoDocument(const DemoOptions& options);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_DEMO_DOCUMENT_H_
