// What annulusd --plan prints of a table of cases.

#include "server/command/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kMiB = size_t{1} << 20;
constexpr ServiceMemory kServices = {
    .replay = 96 * kMiB, .documents = 2048 * kMiB, .prompts = 768 * kMiB};

CapacityTable Table(bool of_host) {
  CapacityTable table;
  table.description = "a model";
  table.parameters = 1000;
  table.context = 4096;
  CapacityCase& planned = table.cases.emplace_back();
  planned.tokens = 2048;
  MemoryPlan& plan = planned.plan;
  plan.of_host = of_host;
  plan.total = 1024 * kMiB;
  plan.weights = 200 * kMiB;
  plan.program = of_host ? 30 * kMiB + kServices.replay : 0;
  plan.kv = 500 * kMiB;
  plan.step = 7 * kMiB;
  plan.slots = of_host ? 0 : 3 * kMiB;
  plan.evidence = 3 * kMiB;
  plan.free = plan.total - plan.weights - plan.program;
  return table;
}

TEST(PlanText, AnswersKeptForRetriesArePartOfTheHostsSum) {
  const std::string text = PlanText(Table(/*of_host=*/true), "a machine", kServices);
  EXPECT_THAT(text, HasSubstr("200 MiB       136 MiB       500 MiB"));
  EXPECT_THAT(text, HasSubstr("workspace, evidence (up to 3 MiB), --kv-host"));
  EXPECT_THAT(text, HasSubstr("this program, 96 MiB of answers kept for retries "
                              "(--max-replay-memory)"));
}

TEST(PlanText, SaysWhatClientsCanAdd) {
  EXPECT_THAT(PlanText(Table(/*of_host=*/true), "a machine", kServices),
              AllOf(HasSubstr("Not counted: what clients can use, up to 2 GiB of documents "
                              "(--max-documents-memory)"),
                    HasSubstr("768 MiB of calls in progress (--max-prompts-memory)")));
}

TEST(PlanText, BuffersToReadExpertsAreOtherMemory) {
  CapacityTable table = Table(/*of_host=*/true);
  table.cases[0].plan.expert_readers = 12 * kMiB;
  const std::string text = PlanText(table, "a machine", kServices);
  EXPECT_THAT(text, HasSubstr("200 MiB       148 MiB       500 MiB"));
  EXPECT_THAT(text, HasSubstr("workspace, buffers to read experts (12 MiB), evidence (up to"));
}

// The table is of the GPU's memory alone.
TEST(PlanText, OfAGpuTheHostsMemoryIsSaidBesides) {
  const std::string text = PlanText(Table(/*of_host=*/false), "a GPU", kServices);
  EXPECT_THAT(text, HasSubstr("200 MiB       10 MiB        500 MiB"));
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("The host's memory is not counted"), HasSubstr("evidence (up to 3 MiB), 96"),
            HasSubstr("96 MiB of answers kept for retries"), HasSubstr("2 GiB of documents"),
            HasSubstr("besides this program and --kv-host, up to"), HasSubstr("768 MiB of calls")));
}

TEST(PlanText, WhatTheSumLacksIsSaid) {
  CapacityTable table = Table(/*of_host=*/true);
  table.cases[0].plan.program += 300 * kMiB;
  EXPECT_THAT(PlanText(table, "a machine", kServices), HasSubstr("none: 112 MiB too little"));
}

}  // namespace
}  // namespace annulus::server
