#include "engine/capacity.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/process_memory.h"
#include "engine/engine_setup.h"
#include "engine/loading/model_files.h"
#include "engine/memory_plan.h"
#include "engine/model/weights/weights.h"
#include "engine/pages/page_stores.h"
#include "engine/request/evidence_heads.h"
#include "engine/runner/rank_model.h"
#include "engine/runner/rank_set.h"
#include "engine/scheduler/placement.h"
#include "engine/scheduler/trial_ring.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// How many sizes of keys and values are tried. The kernels' workspace grows with that size, so the
// first size is too large, and each next one is nearer.
constexpr int kMostTries = 8;

// PlanMemory for devices that hold nothing but the weights.
absl::StatusOr<MemoryPlan> PlanAlone(const RankModel& model, const RankSetOptions& ranks,
                                     const HostUse& host, Backend& machine) {
  ANNULUS_ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(model, ranks, host, machine));
  if (!plan.of_host) plan.free = BytesLeft(plan.total, plan.weights);
  return plan;
}

// With all that is left for keys and values, unless the options say how much; `ranks` gains it.
absl::StatusOr<MemoryPlan> Fill(const RankModel& model, RankSetOptions& ranks, const HostUse& host,
                                Backend& machine) {
  const auto count = static_cast<size_t>(ranks.span.local);
  const auto devices = static_cast<size_t>(DevicesOf(machine, ranks.span.local));
  const size_t page = GeometryOf(model).page_bytes();
  size_t& kv = ranks.engine.kv_memory_bytes;
  if (kv > 0) return PlanAlone(model, ranks, host, machine);  // as it was told
  ANNULUS_ASSIGN_OR_RETURN(MemoryPlan plan, PlanAlone(model, ranks, host, machine));
  for (int tries = 0; tries < kMostTries; ++tries) {
    const size_t left = BytesLeft(plan.free, plan.needed() - plan.kv) * devices;
    const size_t filled = left / count / page * page * count;
    if (filled == kv) return plan;
    kv = filled;
    ANNULUS_ASSIGN_OR_RETURN(plan, PlanAlone(model, ranks, host, machine));
  }
  while (plan.needed() > plan.free && kv > 0) {
    const size_t excess = std::max((plan.needed() - plan.free) * devices, count * page);
    kv = BytesLeft(kv, excess) / (count * page) * (count * page);
    ANNULUS_ASSIGN_OR_RETURN(plan, PlanAlone(model, ranks, host, machine));
  }
  return plan;
}

absl::StatusOr<CapacityCase> PlanCase(const EngineOptions& options, const RankModel& model,
                                      const HostUse& host, Backend& machine) {
  const PlanLimits limits = PlanLimitsOf(options, model);
  RankSetOptions ranks = RankSetOptionsOf(options, limits);
  CapacityCase planned;
  planned.weights_dtype = model.weights.dtype;
  planned.kv_dtype = model.page_shape.dtype;
  planned.ranks = options.ranks;
  ANNULUS_ASSIGN_OR_RETURN(planned.plan, Fill(model, ranks, host, machine));
  planned.kv_bytes_per_token = KvBytesPerToken(model);
  const size_t pages = ranks.engine.kv_memory_bytes / static_cast<size_t>(options.ranks) /
                       GeometryOf(model).page_bytes();
  const auto most = static_cast<size_t>(std::numeric_limits<int32_t>::max());
  const std::vector<int32_t> each(static_cast<size_t>(options.ranks),
                                  static_cast<int32_t>(std::min(pages, most)));
  PageDemand demand;
  demand.checkpoints = 1;  // at the end of the prompt
  planned.tokens = TrialRing(limits, each).LongestFit(demand);
  return planned;
}

// What LoadModel makes of these options, without the weights' values.
absl::StatusOr<RankModel> ShapeModel(const EngineOptions& options, const ModelFiles& files,
                                     const Backend& machine, const KernelRegistry& kernels) {
  ANNULUS_ASSIGN_OR_RETURN(const ModelKernels chosen,
                           SelectKernels(options, files, machine, kernels));
  ANNULUS_ASSIGN_OR_RETURN(ModelWeights weights,
                           ShapeWeights(files.config, *files.tensors, *chosen.ops,
                                        WantedDType(options, files), options.expert_memory_bytes));
  RankModel model = MakeRankModel(files.config, std::move(weights), *chosen.ops,
                                  options.page_tokens, chosen.kv_dtype);
  model.activations = options.activations;
  return model;
}

}  // namespace

absl::StatusOr<CapacityTable> PlanCapacity(const CapacityQuestion& question, Backend& machine,
                                           const KernelRegistry& kernels) {
  EngineOptions options = question.options;
  ANNULUS_RETURN_IF_ERROR(CheckOptions(options));
  options = Settle(std::move(options), machine);
  CapacityTable table;
  std::optional<size_t> program;  // of one that has opened the model, tokenizer and all
  for (const std::optional<DType>& weights : question.weights_dtypes) {
    options.weights_dtype = weights;
    ANNULUS_ASSIGN_OR_RETURN(const ModelFiles files,
                             OpenModelShape(options.model, CodesOf(options, machine, kernels)));
    ANNULUS_ASSIGN_OR_RETURN(table.context, ContextLimit(files.config, options.max_context));
    table.description = files.description;
    if (!program) {
      program = static_cast<size_t>(std::max<int64_t>(0, ReadProcessMemory().resident)) +
                question.services_bytes;
    }
    std::set<DType> seen;
    for (const std::optional<DType>& kv : question.kv_dtypes) {
      options.kv_dtype = kv;
      const absl::StatusOr<RankModel> model = ShapeModel(options, files, machine, kernels);
      if (!model.ok()) {
        if (question.weights_dtypes.size() * question.kv_dtypes.size() == 1) return model.status();
        table.missing.push_back(absl::StrCat(
            "weights ", weights ? DTypeName(*weights) : "as they are stored", ", keys and values ",
            kv ? DTypeName(*kv) : "auto", ": ", model.status().message()));
        continue;
      }
      if (!seen.insert(model->page_shape.dtype).second) continue;
      table.parameters = model->weights.parameters;
      ANNULUS_ASSIGN_OR_RETURN(const std::vector<LayerHead> heads,
                               FindEvidenceHeads(options.attention_profile, *model));
      for (const int ranks : question.ranks) {
        options.ranks = ranks;
        const HostUse host = {
            .program = *program,
            .kv_host = static_cast<size_t>(options.kv_host_bytes),
            .pinned = PageStores::BufferBytes(options, GeometryOf(*model)),
            .memory = 0,  // of another machine, maybe
            .evidence = EvidenceShapeOf(*model, heads, ranks, machine.capabilities()),
            .max_context = table.context,
        };
        ANNULUS_RETURN_IF_ERROR(CheckOptions(options));
        ANNULUS_ASSIGN_OR_RETURN(CapacityCase planned, PlanCase(options, *model, host, machine));
        table.cases.push_back(std::move(planned));
      }
    }
  }
  return table;
}

}  // namespace annulus
