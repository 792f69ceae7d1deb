#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_SEQUENCE_MAKER_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_SEQUENCE_MAKER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/coordinator/coordinator_options.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/planning/policy_chooser.h"
#include "engine/request/request.h"
#include "engine/scheduler/placement.h"
#include "engine/state/sequence.h"

namespace annulus {

// Makes the sequences of requests and checks. Used by the coordinator's thread alone.
class SequenceMaker {
 public:
  // `end_of_text_ids`, `vocabulary`: see Coordinator. The references must outlive the object.
  SequenceMaker(const CoordinatorOptions& options, const Ledger& ledger,
                const PolicyChooser& policies, std::vector<int32_t> end_of_text_ids,
                int32_t vocabulary)
      : options_(options),
        ledger_(ledger),
        policies_(policies),
        end_of_text_ids_(std::move(end_of_text_ids)),
        vocabulary_(vocabulary) {}

  // A sequence for the prompt to read (Request::tokens_to_read), without pages and with nothing
  // computed. Its home is the ring's rank with the fewest homes, or the most if ranks share the
  // machine (see RankToJoin). `owner`: who will hold its pages. `rope_length`:
  // PrefixReuse::RopeLengthOf.
  std::unique_ptr<Sequence> Make(const Request& request, PageOwner owner, const RingChoice& choice,
                                 std::shared_ptr<const AttentionAssignment> attention,
                                 int64_t rope_length) const;

 private:
  const CoordinatorOptions& options_;
  const Ledger& ledger_;
  const PolicyChooser& policies_;
  const std::vector<int32_t> end_of_text_ids_;
  const int32_t vocabulary_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_SEQUENCE_MAKER_H_
