#ifndef ANNULUS_CLIENT_DRAW_EXPLAIN_PAGE_H_
#define ANNULUS_CLIENT_DRAW_EXPLAIN_PAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"

namespace annulus::client {

// A finished request and, optionally, the same request with dense attention.
struct ExplainedRun {
  struct Answer {
    std::string text;
    v1::Completion completion;
  };
  // Facts that identify the run. The page leaves out empty ones.
  struct Subject {
    std::string model{};
    std::vector<std::string> documents{};  // their titles
    std::string date{};                    // when it ran, with the time zone
    std::string version{};                 // of the server
  };
  Subject subject;
  std::string prompt;  // without the documents
  Answer answer;       // with AttentionReport.details
  std::optional<Answer> dense;
};

// Whether the request asked for a coverage. The policy in the report spells out all parameters, and
// has "coverage=" only if it was asked for.
bool HasContract(const v1::AttentionReport& report);

// Wall time that the policy saved.
// - Measured if the request was also run densely: the difference of the two runs' total times
//   without queueing. nullopt if the runs reused different numbers of tokens, or lack timings.
// - Estimated otherwise. Attention time is taken as proportional to the number of attended pairs,
//   so dense attention would have taken attend_wall_seconds / density; the time to choose blocks
//   counts against the policy. nullopt if attention was not timed.
struct SavedTime {
  double seconds = 0;  // negative if the policy took longer
  double dense = 0;    // seconds of the dense run, or estimated seconds of dense attention
  bool measured = false;
};
std::optional<SavedTime> SavedSeconds(const ExplainedRun& run);

// Returns a self-contained HTML document: figures, the density and coverage of every layer and
// head, and the blocks that each chose. INTERNAL as for ExplainMaps.
absl::StatusOr<std::string> ExplainPage(const ExplainedRun& run);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_DRAW_EXPLAIN_PAGE_H_
