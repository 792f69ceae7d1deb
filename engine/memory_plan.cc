#include "engine/memory_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/process_memory.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/runner/step/step_buffers.h"
#include "engine/runner/work_shape.h"
#include "kernels/base/device_error.h"
#include "kernels/base/format_bytes.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// The least of all devices that ranks use.
absl::StatusOr<size_t> LeastFree(Backend& backend, int devices) {
  size_t least = SIZE_MAX;
  for (int device = 0; device < devices; ++device) {
    ANNULUS_ASSIGN_OR_RETURN(const size_t free, backend.OnDevice(device).FreeMemory());
    least = std::min(least, free);
  }
  return least;
}

absl::Status CheckHostTiers(const HostUse& host, size_t evidence) {
  const size_t needed = host.kv_host + host.pinned + evidence;
  const size_t left = BytesLeft(host.memory, host.program);
  if (host.memory == 0 || needed <= left) return absl::OkStatus();
  const bool tiers = host.kv_host + host.pinned > 0;
  return absl::ResourceExhaustedError(absl::StrCat(
      tiers ? "keys and values in --kv-host, the pinned buffers to copy them, and " : "",
      "evidence (", FormatBytes(evidence), ") ", tiers ? "take " : "takes ", FormatBytes(needed),
      " of the host's memory, but of its ", FormatBytes(host.memory), " only ", FormatBytes(left),
      " are left for ", tiers ? "them" : "it", "; lower ",
      host.kv_host > 0 ? "--kv-host" : "--max-context"));
}

}  // namespace

EvidenceRoom EvidenceRoomOf(const RankModel& model, const HostUse& host, size_t kv_bytes,
                            int max_running) {
  if (host.evidence.layers == 0) return {};
  const auto held = static_cast<int64_t>(kv_bytes) / KvBytesPerToken(model);
  return PlanEvidence(host.evidence, std::min(held, host.max_context), max_running,
                      std::min(kMostEvidenceRoom, kv_bytes / kKvBytesForEvidenceByte));
}

size_t ProgramBytes(const RankModel& model, const Backend& backend) {
  const int64_t weights =
      backend.capabilities().host_accessible ? static_cast<int64_t>(model.weights.bytes) : 0;
  return static_cast<size_t>(std::max<int64_t>(0, ReadProcessMemory().resident - weights));
}

absl::StatusOr<MemoryPlan> PlanMemory(const RankModel& model, const RankSetOptions& ranks,
                                      const HostUse& host, Backend& backend) {
  const BackendCapabilities& device = backend.capabilities();
  const RankSpan& span = ranks.span;
  const int devices = DevicesOf(backend, span.local);
  MemoryPlan plan;
  plan.of_host = device.host_accessible;
  plan.total = device.memory_bytes;
  plan.reserve = device.reserved_bytes;
  plan.weights = model.weights.bytes;
  if (span.local > 0) {
    const size_t kv_of_rank = ranks.engine.kv_memory_bytes / static_cast<size_t>(span.local);
    plan.evidence = EvidenceRoomOf(model, host, kv_of_rank * static_cast<size_t>(span.all),
                                   ranks.engine.max_running)
                        .total();
  }
  if (plan.of_host) {
    plan.program = host.program;
    plan.kv_host = host.kv_host;
    plan.free = BytesLeft(BytesLeft(plan.total, host.program), plan.weights);
  } else {
    ANNULUS_ASSIGN_OR_RETURN(plan.free, LeastFree(backend, devices));
    plan.host_tiers = host.kv_host + host.pinned;
    ANNULUS_RETURN_IF_ERROR(CheckHostTiers(host, plan.evidence));
  }
  if (span.local == 0) return plan;
  // Of the device with most ranks.
  const size_t own = static_cast<size_t>((span.local + devices - 1) / devices);
  plan.ranks = static_cast<int>(own);
  const size_t kv = ranks.engine.kv_memory_bytes;
  plan.kv = devices == 1 ? kv : kv / span.local * own;
  plan.step = (CountStepBytes(model, ranks.rows_per_rank, span.all, device).device +
               CountSuspendedBytes(model, ranks.suspended_rows)) *
              own;
  plan.workspace = backend.PlanWorkspace(WorkShapeOf(model, ranks, device)).total() * own;
  plan.slots = CountSlotBytes(model, ranks, devices) * own;
  plan.expert_readers =
      model.weights.expert_reader_bytes * static_cast<size_t>(ExpertReaders(device.threads));
  return plan;
}

absl::Status CheckPlan(const MemoryPlan& plan, int ranks) {
  if (plan.needed() <= plan.free) return absl::OkStatus();
  std::string parts = absl::StrCat("keys and values ", FormatBytes(plan.kv));
  for (const auto& [what, bytes] :
       {std::pair("keys and values in --kv-host", plan.kv_host), std::pair("a step", plan.step),
        std::pair("evidence", plan.of_host ? plan.evidence : 0),
        std::pair("kernel workspace", plan.workspace), std::pair("ring buffers", plan.slots),
        std::pair("buffers to read experts", plan.expert_readers),
        std::pair("reserve for the driver", plan.reserve)}) {
    if (bytes > 0) absl::StrAppend(&parts, ", ", what, " ", FormatBytes(bytes));
  }
  std::string beside = absl::StrCat("the weights (", FormatBytes(plan.weights), ")");
  if (plan.of_host) absl::StrAppend(&beside, " and the program (", FormatBytes(plan.program), ")");
  // --kv-memory is that of all ranks, and the plan that of one device.
  const size_t most = BytesLeft(plan.free, plan.needed() - plan.kv) / plan.ranks * ranks >> 20;
  const absl::Status refused = absl::ResourceExhaustedError(absl::StrCat(
      "there is not enough memory: ", parts, ", in total ", FormatBytes(plan.needed()),
      ", but of the device's ", FormatBytes(plan.total), " only ", FormatBytes(plan.free),
      " are left besides ", beside,
      most > 0 ? absl::StrCat("; --kv-memory may be at most ", most, "MiB for all ranks together")
               : "",
      "; lower --kv-memory, ", plan.kv_host > 0 ? "--kv-host, " : "", "--chunk-tokens or --ranks",
      plan.of_host ? "" : ", or stop other programs that use the device"));
  // If others hold memory that would suffice, it may be free at another start. What the driver
  // itself has taken by now, about as much as `reserve`, will not.
  const bool held_by_others =
      !plan.of_host && plan.needed() + plan.weights + plan.reserve <= plan.total;
  return held_by_others ? OfDevice(refused) : refused;
}

absl::StatusOr<size_t> DefaultKvMemory(const RankModel& model, RankSetOptions ranks,
                                       Backend& backend) {
  const auto devices = static_cast<size_t>(DevicesOf(backend, ranks.span.local));
  const size_t wanted = backend.capabilities().memory_bytes / 4 * devices;
  if (backend.capabilities().host_accessible) return wanted;
  ranks.engine.kv_memory_bytes = wanted;
  ANNULUS_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(model, ranks, {}, backend));
  if (plan.needed() <= plan.free) return wanted;
  // Nothing else that is planned grows where these become less.
  const auto count = static_cast<size_t>(ranks.span.local);
  const size_t excess = (plan.needed() - plan.free) / static_cast<size_t>(plan.ranks) + 1;
  const size_t left = BytesLeft(wanted, excess * count);
  // Where not even a chunk's keys would find room, CheckPlan says why.
  const size_t pages = static_cast<size_t>(ranks.rows_per_rank / model.page_shape.page_tokens + 1) *
                       model.groups.size();
  return left < pages * GeometryOf(model).page_bytes() * count ? wanted : left;
}

}  // namespace annulus
