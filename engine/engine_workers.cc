#include "engine/engine_workers.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_setup.h"
#include "engine/memory_plan.h"
#include "engine/request/evidence_heads.h"
#include "engine/request/evidence_memory.h"
#include "engine/ring/wire/ucx_carrier.h"
#include "engine/tiers/shelf_store.h"
#include "engine/workers/remote_ranks.h"
#include "engine/workers/worker_ranks.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using OpenCarrier = std::function<absl::StatusOr<std::unique_ptr<Carrier>>()>;

OpenCarrier CarriersOf(const EngineSeams& seams, const std::string& devices) {
  if (seams.open_carrier != nullptr) return seams.open_carrier;
  return [devices] { return OpenUcxCarrier(devices); };
}

RingAgreement AgreementOf(const LoadedModel& model, const std::string& build) {
  return {.build = build,
          .kernels = model.ranks.ops->name,
          .page_layout = PageLayoutOf(model.ranks),
          .fingerprint = model.fingerprint};
}

Counter& CounterOf(RingLoss loss, EngineMetrics& metrics) {
  switch (loss) {
    case RingLoss::kClosed:
      return metrics.ring_losses_closed;
    case RingLoss::kSilent:
      return metrics.ring_losses_silent;
    case RingLoss::kMessage:
      return metrics.ring_losses_message;
    case RingLoss::kWire:
      break;
  }
  return metrics.ring_losses_wire;
}

class LoadedWorker final : public Worker {
 public:
  LoadedWorker(const EngineSeams& seams, const EngineOptions& options, const WorkerOptions& worker,
               LoadedModel model, Backend& backend)
      : model_(std::move(model)), backend_(backend), board_(*seams.clock) {
    options_.board = &board_;
    options_.name = worker.name;
    options_.ranks = options.ranks;
    options_.engine = options;
    options_.agreement = AgreementOf(model_, worker.build);
    options_.open_carrier = CarriersOf(seams, worker.wire_devices);
    options_.on_stuck = worker.on_stuck;
    options_.clock = seams.clock;
    const size_t program = ProgramBytes(model_.ranks, backend);
    options_.check_memory = [this, program](const RankSetOptions& set) -> absl::Status {
      // The profile that may name other heads is the coordinator's.
      const std::vector<LayerHead> heads = DefaultEvidenceHeads(model_.ranks);
      const HostUse host = {
          .program = program,
          .kv_host = static_cast<size_t>(set.engine.kv_host_bytes),
          .evidence = EvidenceShapeOf(model_.ranks, heads, set.span.all, backend_.capabilities()),
          .max_context = model_.info.max_context};
      ANNULUS_ASSIGN_OR_RETURN(const MemoryPlan plan,
                               PlanMemory(model_.ranks, set, host, backend_));
      return CheckPlan(plan, set.span.all);
    };
  }

  absl::Status Serve(WorkerLink& link) override {
    return ServeRanks(model_.ranks, backend_, options_, link);
  }
  WorkerStatus Status() const override { return board_.Read(); }

 private:
  const LoadedModel model_;
  Backend& backend_;
  WorkerBoard board_;
  WorkerRanksOptions options_;
};

}  // namespace

absl::Status CheckWorkers(const EngineOptions& options, const EngineWorkers& workers) {
  if (workers.local_ranks < 0 || workers.local_ranks >= options.ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "of ", options.ranks, " ranks ", workers.local_ranks,
        " are to be in this process; with workers that must be 0 to ", options.ranks - 1));
  }
  const int most_lost = std::min(options.ranks - 1, options.ranks - workers.local_ranks);
  if (workers.tolerated_ranks < 0 || workers.tolerated_ranks > most_lost) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the loss of ", workers.tolerated_ranks, " of ", options.ranks, " ranks, ",
        workers.local_ranks, " of them in this process, is to be tolerated; that must be 0 to ",
        most_lost));
  }
  if (workers.silence < kLeastSilence || workers.silence > kMostSilence) {
    return absl::InvalidArgumentError(
        absl::StrCat("workers may be silent for ", TimeText(workers.silence), "; allowed are ",
                     TimeText(kLeastSilence), " to ", TimeText(kMostSilence)));
  }
  if (!options.kv_disk.empty()) {
    return absl::InvalidArgumentError(
        "pages of workers cannot be kept on disk yet: set no --kv-disk");
  }
  if (options.kv_host_bytes > 0 && options.kv_verify == KvVerify::kAll) {
    return absl::InvalidArgumentError(
        "pages in the host memory of workers cannot be compared with all that is computed: "
        "--kv-verify must be sample or off");
  }
  if (options.kv_host_bytes > 0 && workers.tolerated_ranks > 0) {
    return absl::InvalidArgumentError(
        "no room can be kept for the loss of ranks whose pages are also in the host's memory: set "
        "either --tolerate or --kv-host");
  }
  return absl::OkStatus();
}

absl::StatusOr<GatheredRanks> GatherRanks(const EngineSeams& seams, const LoadedModel& model,
                                          Backend& backend, const RankSetOptions& set,
                                          size_t kv_bytes, EngineMetrics& metrics) {
  RemoteRanksOptions options;
  if (set.engine.kv_host_bytes > 0) {
    ANNULUS_ASSIGN_OR_RETURN(
        options.shelf_slots,
        ShelfStore::SlotsOf({.limit_bytes = set.engine.kv_host_bytes,
                             .page_bytes = GeometryOf(model.ranks).stored_bytes(),
                             .ranks = set.span.all}));
  }
  options.set = set;
  options.kv_bytes_per_rank = kv_bytes / static_cast<size_t>(set.span.all);
  options.agreement = AgreementOf(model, seams.workers.build);
  options.open_carrier = CarriersOf(seams, seams.workers.wire_devices);
  options.silence = seams.workers.silence;
  options.replacement_timeout = seams.workers.replacement_timeout;
  options.on_loss = [&metrics](RingLoss loss) { CounterOf(loss, metrics).Increment(); };
  options.time_links = set.engine.ring_mode == RingMode::kAuto;
  ANNULUS_ASSIGN_OR_RETURN(
      std::unique_ptr<RemoteRanks> ranks,
      RemoteRanks::Create(model.ranks, backend, *seams.workers.source, options));
  RankShelves* const shelves = ranks->shelves();
  return GatheredRanks{std::move(ranks), shelves};
}

absl::StatusOr<std::unique_ptr<Worker>> CreateWorkerWith(const EngineSeams& seams,
                                                         const EngineOptions& options,
                                                         const WorkerOptions& worker,
                                                         Backend& backend,
                                                         const KernelRegistry& kernels) {
  ANNULUS_RETURN_IF_ERROR(CheckOptions(options));
  const EngineOptions settled = Settle(options, backend);
  ANNULUS_ASSIGN_OR_RETURN(LoadedModel model, LoadModel(settled, backend, kernels));
  return std::make_unique<LoadedWorker>(seams, settled, worker, std::move(model), backend);
}

absl::StatusOr<std::unique_ptr<Worker>> CreateWorker(const EngineOptions& options,
                                                     const WorkerOptions& worker, Backend& backend,
                                                     const KernelRegistry& kernels) {
  return CreateWorkerWith({}, options, worker, backend, kernels);
}

}  // namespace annulus
