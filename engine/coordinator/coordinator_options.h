#ifndef ANNULUS_ENGINE_COORDINATOR_COORDINATOR_OPTIONS_H_
#define ANNULUS_ENGINE_COORDINATOR_COORDINATOR_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/api/options.h"
#include "engine/model/rope.h"
#include "engine/pages/page_levels.h"
#include "engine/request/auto_policy.h"
#include "engine/scheduler/scheduler.h"
#include "engine/sparse/assignment.h"

namespace annulus {

class PageComparer;
class Tokenizer;

struct CoordinatorOptions {
  PlanLimits limits;
  // Whether all ranks read the weights from one memory and compute on the same processors.
  bool ranks_share_machine = false;
  ModePolicy modes;
  AdmissionMode admission = AdmissionMode::kWorst;
  int max_running = 64;   // most requests that run at once; parked ones do not count
  int max_waiting = 256;  // most requests that wait for admission
  // The longest time that a stream should wait between two tokens: see StepPacer. 0: no limit.
  std::chrono::milliseconds stall_budget{0};
  Speculation speculation = Speculation::kOff;  // default of RequestSpec::speculation
  // Names everything that the bytes of pages depend on and that is the same for all requests:
  // model, dtypes, kernels, shards. Pages are reused only under an equal identity.
  std::string identity;
  AttentionAssignment attention;  // default of RequestSpec::attention
  AutoSetting automatic;
  std::vector<RopeConfig> ropes;                          // the model's rotary settings
  std::chrono::milliseconds slow_reader_timeout{30'000};  // see ReaderPace
  // Shares of all ranks' pages, 0 to 1, that all pins and those of one tenant may hold.
  double max_pinned = 0.5;
  double max_pinned_by_tenant = 0.25;
  // Stores that pages are saved in and restored from, the fastest first. Empty: there is no tier.
  std::vector<PageLevels::Level> tiers;
  std::vector<ContentHash> other_identities;  // see PageTier::Options
  KvVerify verify = KvVerify::kOff;           // how pages from the tiers are checked
  PageComparer* comparer = nullptr;           // not null for KvVerify::kSample
  const Tokenizer* tokenizer = nullptr;       // the model's; not null for KvVerify::kSample
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_COORDINATOR_OPTIONS_H_
