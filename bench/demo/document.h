#ifndef ANNULUS_BENCH_DEMO_DOCUMENT_H_
#define ANNULUS_BENCH_DEMO_DOCUMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus {

// The builtin recall model knows a place in the document by the bytes before it, this many of them
// (kRecallContext of engine/model/recall_model.h).
inline constexpr int kDemoContextBytes = 8;

struct DemoOptions {
  int64_t bytes = 1'000'000;  // of the document, exactly; 1..10^9
  uint64_t seed = 7;
  std::vector<double> depths = {0.01, 0.33, 0.99};  // one planted fact each, 0..1 of the document
};

// One record of the document: cue + answer + '\n'.
struct DemoFact {
  double depth = 0;    // as asked for
  int64_t offset = 0;  // of the cue's first byte; at or shortly before depth * bytes
  std::string cue;     // to be appended to the document
  std::string answer;  // what follows the cue in the document, up to the line end
};

struct DemoDocument {
  std::string text;             // printable ASCII and '\n'; one record per line; ends with '\n'
  std::vector<DemoFact> facts;  // by ascending offset
};

// Writes a document of invented records with planted facts. Deterministic in `options` on every
// machine. Promise: for each fact the kDemoContextBytes bytes before every answer byte, and before
// the line end after it, occur once in the document, and so does every such context in text + cue +
// answer up to the byte being answered. So a model that copies what followed the same context
// continues text + cue with exactly `answer` and a line end.
// INVALID_ARGUMENT: a size or depth out of range, more facts than fit in `bytes` (both numbers are
// given), or more than 1000 facts.
absl::StatusOr<DemoDocument> MakeDemoDocument(const DemoOptions& options);

}  // namespace annulus

#endif  // ANNULUS_BENCH_DEMO_DOCUMENT_H_
