#ifndef ANNULUS_CLIENT_DRAW_EXPLAIN_PAGE_H_
#define ANNULUS_CLIENT_DRAW_EXPLAIN_PAGE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"

namespace annulus {

// A request that has run, and perhaps the same one with dense attention.
struct ExplainedRun {
  struct Answer {
    std::string text;
    v1::Completion completion;
  };
  // What the page is about; what is empty is left out.
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

// Whether a coverage was asked for: policies in effect name every parameter, that one only then.
bool HasContract(const v1::AttentionReport& report);

// Wall time that the policy saved. Measured if the request was also run densely: the difference of
// the two runs without their queues, absent if they reused different tokens. Else an estimate,
// estimating counted in: attending takes as long as there are pairs to attend, so dense attention
// would have taken attend_wall_seconds / density. Absent where nothing was timed.
struct SavedTime {
  double seconds = 0;  // < 0: lost
  double dense = 0;    // what dense attention took, or would take
  bool measured = false;
};
std::optional<SavedTime> SavedSeconds(const ExplainedRun& run);

// One HTML document that needs nothing else: figures, density and coverage of every layer and head,
// and the blocks that each chose.
absl::StatusOr<std::string> ExplainPage(const ExplainedRun& run);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_DRAW_EXPLAIN_PAGE_H_
