#include "server/command/plan_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/dtype.h"
#include "kernels/base/format_bytes.h"

namespace annulus::server {
namespace {

constexpr size_t kColumns = 8;
using Row = std::array<std::string, kColumns>;

std::string Bytes(size_t bytes) { return FormatBytes(static_cast<uint64_t>(bytes)); }

// The longest context that fits; not more than the model's own, even if there is memory for more.
std::string Longest(const CapacityCase& planned, int64_t context) {
  const MemoryPlan& plan = planned.plan;
  const size_t taken = plan.weights + plan.program + plan.needed();
  if (taken > plan.total) return absl::StrCat("none: ", Bytes(taken - plan.total), " too little");
  if (planned.tokens == 0) return "none: no page of keys and values fits";
  if (planned.tokens < context) return absl::StrCat(planned.tokens);
  return absl::StrCat(context, " (room for ", planned.tokens, ")");
}

Row RowOf(const CapacityCase& planned, int64_t context) {
  const MemoryPlan& plan = planned.plan;
  return {std::string(DTypeName(planned.weights_dtype)),
          std::string(DTypeName(planned.kv_dtype)),
          absl::StrCat(planned.ranks),
          Bytes(plan.weights),
          Bytes(plan.needed() - plan.kv + plan.program),
          Bytes(plan.kv),
          Bytes(static_cast<size_t>(planned.kv_bytes_per_token)),
          Longest(planned, context)};
}

void Append(const std::vector<Row>& rows, std::string& text) {
  std::array<size_t, kColumns> width{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kColumns; ++i) width[i] = std::max(width[i], row[i].size());
  }
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < kColumns; ++i) {
      absl::StrAppend(&text, row[i], std::string(width[i] - row[i].size() + 2, ' '));
    }
    absl::StrAppend(&text, row.back(), "\n");
  }
}

// What the columns count. Kept answers are in them, because they fill their memory in ordinary use;
// documents and calls are not: how much clients send is for the operator to judge.
std::string Notes(const CapacityTable& table, const ServiceMemory& services) {
  size_t most = 0;
  size_t readers = 0;
  for (const CapacityCase& planned : table.cases) {
    most = std::max(most, planned.plan.evidence);
    readers = std::max(readers, planned.plan.expert_readers);
  }
  const std::string evidence = absl::StrCat("evidence (up to ", Bytes(most), ")");
  const std::string experts =
      readers == 0 ? "" : absl::StrCat("buffers to read experts (", Bytes(readers), "), ");
  const std::string replay =
      absl::StrCat(Bytes(services.replay), " of answers kept for retries (--max-replay-memory)");
  const std::string clients =
      absl::StrCat(Bytes(services.documents), " of documents (--max-documents-memory)\nand ",
                   Bytes(services.prompts), " of calls in progress (--max-prompts-memory).\n");
  if (table.cases.front().plan.of_host) {
    return absl::StrCat(
        "Memory of the machine; kv: keys and values. Other memory: activations of a step, "
        "kernel\nworkspace, ",
        experts, evidence, ", --kv-host, this program, ", replay,
        ".\nNot counted: what clients can use, up to ", clients);
  }
  return absl::StrCat(
      "Memory of each GPU; kv: keys and values. Other memory: activations of a step, "
      "kernel\nworkspace, a reserve for the driver.\nThe host's memory is not counted: besides "
      "this program and --kv-host, up to\n",
      evidence, ", ", replay, ",\n", clients);
}

}  // namespace

std::string PlanText(const CapacityTable& table, const std::string& machine,
                     const ServiceMemory& services) {
  const bool of_host = table.cases.front().plan.of_host;
  std::string text =
      absl::StrCat("model:    ", table.description, ", ", table.parameters, " parameters, context ",
                   table.context, " tokens\nmachine:  ", machine, "\n\n");
  std::vector<Row> rows = {{"weights", "kv", of_host ? "ranks" : "GPUs", "weights take",
                            "other memory", "left for kv", "kv per token", "longest context"}};
  for (const CapacityCase& planned : table.cases) rows.push_back(RowOf(planned, table.context));
  Append(rows, text);
  absl::StrAppend(
      &text, "\n", Notes(table, services),
      "annulusd uses a quarter of the memory for kv unless --kv-memory (all ranks together) is "
      "set.\nLongest context: prompt and answer of a single request, with dense attention. Several "
      "requests\nat once share the memory for keys and values.\n");
  for (const std::string& missing : table.missing) {
    absl::StrAppend(&text, "left out: ", missing, "\n");
  }
  return text;
}

}  // namespace annulus::server
