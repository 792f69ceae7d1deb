#include "engine/engine_parts.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/disk/disk_calls.h"
#include "engine/engine_setup.h"
#include "engine/engine_workers.h"
#include "engine/memory_plan.h"
#include "engine/request/check_request.h"
#include "engine/request/evidence_heads.h"
#include "engine/ring/wire/wire_ring.h"
#include "engine/runner/rank_set.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Attention rates are measured if ranks exchange anything; otherwise this is the guess.
AutoSetting MakeAutoSetting(const RankModel& model, double flops) {
  AutoSetting setting;
  setting.scores = CanScoreBlocks(*model.ops);
  setting.gates = model.gates != nullptr;
  setting.flops = flops;
  setting.layers = 0;
  for (const CacheGroup& group : model.groups) {
    if (group.window == 0) setting.layers += static_cast<int>(group.layers.size());
  }
  return setting;
}

// Opens the ring and takes all memory of the ranks.
absl::Status StartRanks(EngineParts& parts, Backend& backend) {
  const RankModel& model = parts.model.ranks;
  parts.limits = PlanLimitsOf(parts.options, model);
  RankSetOptions ranks = RankSetOptionsOf(parts.options, parts.limits);
  ranks.clock = &parts.clock();
  ranks.through_bytes = parts.seams.through_bytes;
  ANNULUS_ASSIGN_OR_RETURN(
      parts.exchange, parts.has_workers() ? FindExchangeOfProcesses(
                                                parts.options, parts.span().local, model, backend)
                                          : FindExchange(parts.options, model, backend));
  parts.program_bytes = ProgramBytes(model, backend);
  size_t kv_bytes = parts.options.kv_memory_bytes;  // of all ranks, wherever they are
  if (kv_bytes == 0) {
    ANNULUS_ASSIGN_OR_RETURN(kv_bytes, DefaultKvMemory(model, ranks, backend));
  }
  ranks.span = parts.span();
  ranks.engine.kv_memory_bytes = kv_bytes;
  if (parts.has_workers()) {
    ranks.engine.kv_memory_bytes =
        kv_bytes / static_cast<size_t>(ranks.span.all) * static_cast<size_t>(ranks.span.local);
    ranks.ring = WiderRing{nullptr, kWireRingNeeds};  // opened with the workers
  }
  const HostUse host = {.program = parts.program_bytes,
                        .kv_host = static_cast<size_t>(parts.options.kv_host_bytes) /
                                   static_cast<size_t>(ranks.span.all) *
                                   static_cast<size_t>(ranks.span.local),
                        .pinned = PageStores::BufferBytes(parts.options, GeometryOf(model)),
                        .memory = parts.options.host_memory_bytes,
                        .evidence = parts.evidence_shape,
                        .max_context = parts.model.info.max_context};
  parts.evidence_room = EvidenceRoomOf(model, host, kv_bytes, parts.options.max_running);
  ANNULUS_ASSIGN_OR_RETURN(parts.plan, PlanMemory(model, ranks, host, backend));
  if (ranks.span.local > 0) {
    ANNULUS_RETURN_IF_ERROR(CheckPlan(parts.plan, ranks.span.all));
  }
  parts.metrics = std::make_unique<EngineMetrics>(parts.options.ranks, parts.model.info);
  if (parts.has_workers()) {
    ANNULUS_ASSIGN_OR_RETURN(GatheredRanks gathered, GatherRanks(parts.seams, parts.model, backend,
                                                                 ranks, kv_bytes, *parts.metrics));
    parts.ranks = std::move(gathered.ranks);
    parts.shelves = gathered.shelves;
  } else {
    ANNULUS_ASSIGN_OR_RETURN(parts.ranks, RankSet::Create(model, backend, ranks));
  }
  if (parts.seams.wrap_ranks != nullptr) {
    parts.ranks = parts.seams.wrap_ranks(std::move(parts.ranks));
  }
  return absl::OkStatus();
}

// Opens the tiers, and starts the loop over them and the ranks.
absl::Status StartCoordinator(EngineParts& parts, Backend& backend) {
  const RankModel& model = parts.model.ranks;
  const RankSpan span = parts.span();
  std::vector<Backend*> devices;
  if (span.local == 0) devices.push_back(&backend);
  for (int index = 0; index < span.local; ++index) {
    devices.push_back(&backend.OnDevice(index % DevicesOf(backend, span.local)));
  }
  DiskCalls& disk =
      parts.seams.disk_calls == nullptr ? DiskCalls::System() : *parts.seams.disk_calls;
  ANNULUS_ASSIGN_OR_RETURN(
      parts.stores,
      PageStores::Open(
          parts.options, GeometryOf(model),
          {.devices = devices, .shelves = parts.shelves, .calls = disk, .clock = parts.clock()}));
  CoordinatorOptions coordinator;
  coordinator.engine = parts.options;
  coordinator.limits = parts.limits;
  coordinator.tolerated_ranks = parts.tolerated_ranks();
  // With one thread, ranks that wait have none to lend.
  coordinator.ranks_share_machine = backend.capabilities().host_accessible &&
                                    backend.capabilities().nodes == 1 && span.all > 1 &&
                                    span.local == span.all && parts.options.threads > 1;
  coordinator.modes = ModePolicyOf(parts.options, model, parts.exchange.rates);
  coordinator.modes.visiting_pages = parts.ranks->visiting_pages();
  coordinator.identity = absl::StrCat(parts.model.identity, "/", parts.limits.shards);
  coordinator.automatic = MakeAutoSetting(model, parts.exchange.rates.attention.back().flops);
  coordinator.ropes = model.config.ropes;
  coordinator.evidence_heads = parts.evidence_heads;
  coordinator.evidence_shape = parts.evidence_shape;
  coordinator.evidence_room = parts.evidence_room;
  coordinator.other_identities = parts.stores->OtherIdentities(coordinator.identity);
  coordinator.tiers = parts.stores->Levels(*parts.metrics);
  coordinator.comparer = parts.stores->comparer();
  coordinator.tokenizer = parts.model.tokenizer.get();
  coordinator.tokens = parts.model.ranks.tokens;
  parts.coordinator =
      std::make_unique<Coordinator>(coordinator, *parts.ranks, *parts.metrics, parts.clock(),
                                    parts.model.info.end_of_text_ids, parts.model.info.vocabulary);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<const EngineParts>> StartParts(const EngineSeams& seams,
                                                              const EngineOptions& options,
                                                              Backend& backend,
                                                              const KernelRegistry& kernels) {
  ANNULUS_RETURN_IF_ERROR(CheckOptions(options));
  if (seams.workers.source != nullptr) {
    ANNULUS_RETURN_IF_ERROR(CheckWorkers(options, seams.workers));
  }
  auto parts = std::make_unique<EngineParts>();
  parts->options = Settle(options, backend);
  parts->seams = seams;
  ANNULUS_ASSIGN_OR_RETURN(parts->model, LoadModel(parts->options, backend, kernels));
  ANNULUS_RETURN_IF_ERROR(CheckAttention(options.attention, parts->model.ranks));
  ANNULUS_ASSIGN_OR_RETURN(parts->evidence_heads,
                           FindEvidenceHeads(options.attention_profile, parts->model.ranks));
  parts->evidence_shape = EvidenceShapeOf(parts->model.ranks, parts->evidence_heads,
                                          parts->options.ranks, backend.capabilities());
  parts->model.info.evidence_heads =
      DescribeEvidenceHeads(parts->evidence_heads, options.attention_profile);
  ANNULUS_RETURN_IF_ERROR(StartRanks(*parts, backend));
  ANNULUS_RETURN_IF_ERROR(StartCoordinator(*parts, backend));
  return parts;
}

}  // namespace annulus
