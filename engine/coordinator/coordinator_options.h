#ifndef ANNULUS_ENGINE_COORDINATOR_COORDINATOR_OPTIONS_H_
#define ANNULUS_ENGINE_COORDINATOR_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/api/options.h"
#include "engine/model/rope.h"
#include "engine/pages/page_levels.h"
#include "engine/request/auto_policy.h"
#include "engine/request/evidence_memory.h"
#include "engine/scheduler/scheduler.h"

namespace annulus {

class PageComparer;
class TokenTrie;
class Tokenizer;

struct CoordinatorOptions {
  EngineOptions engine;  // settled: see Settle
  PlanLimits limits;
  // So many ranks may be lost, and what runs still fits on the others: see LossReserve. From 0 to
  // limits.ranks - 1. More than 0 goes together with no tier.
  int tolerated_ranks = 0;
  // Whether all ranks read the weights from one memory and compute on the same processors.
  bool ranks_share_machine = false;
  ModePolicy modes;
  // Names everything that the bytes of pages depend on and that is the same for all requests:
  // model, dtypes, kernels, shards. Pages are reused only under an equal identity.
  std::string identity;
  AutoSetting automatic;
  std::vector<LayerHead> evidence_heads;  // FindEvidenceHeads
  EvidenceShape evidence_shape;           // of these heads
  EvidenceRoom evidence_room;             // requests that find none in it wait
  std::vector<RopeConfig> ropes;          // the model's rotary settings
  // Stores that pages are saved in and restored from, the fastest first. Empty: there is no tier.
  std::vector<PageLevels::Level> tiers;
  std::vector<ContentHash> other_identities;  // see PageTier::Options
  PageComparer* comparer = nullptr;           // not null for KvVerify::kSample
  const Tokenizer* tokenizer = nullptr;       // the model's; not null for KvVerify::kSample
  // The vocabulary's text, for output constraints; null: no request has one.
  std::shared_ptr<const TokenTrie> tokens;

  // How many ranks are left once those are lost.
  int ranks_left() const { return limits.ranks - tolerated_ranks; }
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_COORDINATOR_OPTIONS_H_
