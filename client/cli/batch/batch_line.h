#ifndef ANNULUS_CLIENT_CLI_BATCH_BATCH_LINE_H_
#define ANNULUS_CLIENT_CLI_BATCH_BATCH_LINE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"

namespace annulus::client {

// One request of a batch.
struct BatchLine {
  std::string id;                      // "id" of the line, else its number
  int64_t number = 0;                  // line number, from 1
  std::vector<std::string> documents;  // as the DOCs on the command line of ask
  v1::GenerationSpec spec;             // without documents
};

// Parses one line: {"question": ".."}, {"prompt": ".."} or {"messages": [..]}, optionally with the
// keys "id", "documents", "system", "model", "attention", "coverage" and the fields of
// SamplingParams. Absent keys default to `defaults` and `system`. INVALID_ARGUMENT says what is
// wrong with the line.
absl::StatusOr<BatchLine> ParseBatchLine(const std::string& text, int64_t number,
                                         const v1::GenerationSpec& defaults,
                                         const std::string& system);

// Identifies a request across runs of a batch: the lower-case hexadecimal SHA-256 of its id and its
// spec, including the names of its documents.
std::string RequestKey(const std::string& id, const v1::GenerationSpec& spec);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_BATCH_BATCH_LINE_H_
