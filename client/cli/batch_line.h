#ifndef ANNULUS_CLIENT_CLI_BATCH_LINE_H_
#define ANNULUS_CLIENT_CLI_BATCH_LINE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"

namespace annulus {

// One request of a batch.
struct BatchLine {
  std::string id;                      // the caller's, else the line's number
  int64_t number = 0;                  // of the line, from 1
  std::vector<std::string> documents;  // as on the command line of ask
  v1::GenerationSpec spec;             // without documents
};

// Reads {"question": ".."}, {"prompt": ".."} or {"messages": [..]}, with "id", "documents",
// "system", "model", "attention", "coverage" and the fields of SamplingParams as further keys. What
// is absent is taken from `defaults` and `system`. INVALID_ARGUMENT says what is wrong with the
// line.
absl::StatusOr<BatchLine> ParseBatchLine(const std::string& text, int64_t number,
                                         const v1::GenerationSpec& defaults,
                                         const std::string& system);

// Lower-case hexadecimal SHA-256 of what is asked, the names of its documents and its id included:
// the same request has the same key each time.
std::string RequestKey(const std::string& id, const v1::GenerationSpec& spec);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_BATCH_LINE_H_
