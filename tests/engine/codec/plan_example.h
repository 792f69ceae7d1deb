#ifndef ANNULUS_TESTS_ENGINE_CODEC_PLAN_EXAMPLE_H_
#define ANNULUS_TESTS_ENGINE_CODEC_PLAN_EXAMPLE_H_

#include <bitset>
#include <cstdint>
#include <limits>
#include <string>

#include "engine/codec/step_codec.h"
#include "engine/grammar/compiler/compile.h"

// A plan for a ring of three ranks, for the tests of the codec and as a seed of its fuzzer.

namespace annulus::testing {

inline constexpr int32_t kVocabulary = 1000;

inline CodecLimits Limits() {
  return {.pages = {50, 60, 70},
          .groups = 2,
          .model = {.page_tokens = 16, .layers = 6, .kv_heads = 2},
          .vocabulary = kVocabulary};
}

inline AttentionAssignment Assignment() {
  AttentionAssignment assignment = AttentionPolicy{.kind = PolicyKind::kAdaptive, .tau = 1.0 / 3};
  AttentionRule rule;
  rule.first_layer = 2;
  rule.last_layer = 5;
  rule.first_head = 1;
  rule.policy = {.kind = PolicyKind::kWindow, .window = 128, .coverage = 2.0 / 3};
  assignment.rules.push_back(rule);
  return assignment;
}

inline SamplingSetup Setup() {
  SamplingSetup setup;
  SamplingParams& params = setup.params;
  params.max_tokens = 77;
  params.min_tokens = 3;
  params.temperature = 0.7f;
  params.top_p = 0.9f;
  params.top_k = 40;
  params.min_p = 0.05f;
  params.frequency_penalty = -0.5f;
  params.presence_penalty = 0.25f;
  params.repetition_penalty = 1.1f;
  params.seed = std::numeric_limits<uint64_t>::max();
  params.stop = {"\n", std::string("\xC3\xA4")};
  params.stop_token_ids = {7, 999};
  params.ignore_eos = true;
  params.logprobs = 0;
  params.logit_bias = {{5, -100.0f}, {6, 1.5f}};
  setup.forced = {7, 0, 7};
  setup.prompt = {1, 2, 3};
  setup.generated = {4, 5};
  setup.end_of_text_ids = {0};
  setup.vocabulary = kVocabulary;
  WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
  std::bitset<256> bytes;
  bytes.set();
  Machine machine = *CompileConstraint({OutputConstraint::Kind::kRegex, "(a|[b-d]{2,9}|.){3}", {}},
                                       bytes, &work, &MemoryGrant::Unlimited())
                         .value();
  machine.nodes[1].thinks = true;
  machine.thinking_tokens = 70;
  machine.thinking_end = {8, 9};
  setup.output = std::move(machine);
  return setup;
}

// Every field differs from its default.
inline StepPlan Plan() {
  StepPlan plan;
  plan.step = 123'456'789'012;
  plan.ended = {4, 5};
  SequenceUpdate update;
  update.sequence = 9;
  update.version = 3;
  SequenceTerms& terms = update.terms.emplace();
  terms.version = 3;
  terms.ring = {0, 2};
  terms.home = 2;
  terms.attention = Assignment();
  terms.summaries = {{{1, 2}, {3}}, {}};
  terms.report_lists = true;
  terms.rope_length = 8192;
  terms.evidence = {{{1, 3}, {5, 0}, {5, 7}}, {{4, 70}, {70, 71}, {90, 1000}}};
  update.tables = {{2, {{0, 49, 32}, {2, 69, 48}}}, {0, {}}};
  update.setup = Setup();
  plan.updates.push_back(update);
  plan.stretch = {2, 6, true};
  PlanItem item;
  item.sequence = 9;
  item.begin = 32;
  item.end = 36;
  item.tokens = {10, 11, 12, 999};
  item.mode = RingMode::kPassKv;
  item.runs = {{0, 32, 3}, {2, 35, 1}};
  item.logits_positions = {33, 35};
  item.score = {2, 999};
  plan.items.push_back(item);
  item.begin = 35;
  item.tokens = {999};
  item.mode = RingMode::kPassQ;
  item.runs = {{2, 35, 1}};
  item.logits_positions = {};
  item.score.reset();
  item.sampled = true;
  plan.items.push_back(item);
  item.sequence = 10;
  plan.items.push_back(item);
  return plan;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_CODEC_PLAN_EXAMPLE_H_
