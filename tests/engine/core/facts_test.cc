// Facts at every depth of a document, continued token by token under policies of answers, on rings
// of several degrees in both modes.
//   ANNULUS_RECALL_TOKENS=65536   a longer document than the suite takes

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/demo/document.h"
#include "engine/base/clock.h"
#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::CollectingSink;

constexpr int64_t kSuiteTokens = 9000;

// The control: what answers may see under it. Blocks of 64 are seen as a whole.
constexpr int64_t kBlock = 64;
constexpr int64_t kSinks = 64;
constexpr int64_t kWindow = 512;
constexpr char kBlind[] = "window:sinks=64,window=512";

// Whether no row of the answer sees a byte of it in a document of `tokens` under kBlind.
bool OutOfSight(const bench::DemoFact& fact, int64_t tokens) {
  const auto cue = static_cast<int64_t>(fact.cue.size());
  const int64_t begin = fact.offset + cue;
  const int64_t end = begin + static_cast<int64_t>(fact.answer.size());
  const int64_t first_row = tokens + cue - 1;
  return begin >= kSinks && end + kBlock + kWindow <= first_row;
}

int64_t Tokens() {
  const char* value = std::getenv("ANNULUS_RECALL_TOKENS");
  return value != nullptr ? std::stoll(value) : kSuiteTokens;
}

// One document on one engine; its keys and values are computed once, and shared by all questions.
class Reader {
 public:
  Reader(const std::string& model, int64_t tokens, int ranks, RingMode mode)
      : backend_(CreateCpuBackend().value()) {
    RegisterCpuKernels(registry_);
    bench::DemoOptions demo{.bytes = tokens, .seed = 6, .depths = {0.01, 0.25, 0.5, 0.75, 0.99}};
    document_ = bench::MakeDemoDocument(demo).value();
    EngineOptions options = testing::PlainOptions();
    options.model = model;
    options.ranks = ranks;
    options.threads = 2;
    options.kv_memory_bytes = static_cast<size_t>(tokens + 8192 * ranks) * 3 * 1024;
    options.tokens_per_rank = 256;
    options.kv_dtype = DType::kBF16;
    options.ring_mode = mode;
    engine_ = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_).value();
  }

  struct Found {
    std::vector<bool> facts;  // whole answers
    double density = 0;       // the mean answer's

    auto count() const { return std::count(facts.begin(), facts.end(), true); }
  };
  Found Ask(const std::string& policy) {
    Found found;
    for (const bench::DemoFact& fact : document_.facts) {
      RequestSpec spec;
      spec.prompt = engine_->Tokenize(document_.text + fact.cue, true, CancelFlag::Never()).value();
      spec.shared_prefixes = {static_cast<int32_t>(document_.text.size())};
      spec.sampling.temperature = 0;
      spec.sampling.max_tokens = 64;
      spec.sampling.stop = {"\n"};
      spec.attention = ParsePolicy(policy).value();
      auto sink = std::make_shared<CollectingSink>();
      const auto id = engine_->Submit(std::move(spec), sink);
      EXPECT_TRUE(id.ok()) << id.status();
      const bool done = sink->Wait(7200).has_value();
      EXPECT_TRUE(done);
      if (!done) return found;
      found.facts.push_back(sink->text() == fact.answer);
      found.density +=
          sink->Wait()->attention.density / static_cast<double>(document_.facts.size());
    }
    return found;
  }
  const bench::DemoDocument& document() const { return document_; }

 private:
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  bench::DemoDocument document_;
  std::unique_ptr<Engine> engine_;  // last: it uses the others
};

// As many as the policy takes by itself; fewer where that would be most of the document.
int64_t SomePages(int64_t tokens) { return tokens > 20'000 ? AttentionPolicy().pages : 16; }

// Answers attend `pages` blocks and their own; what a reply reports is at most `most_density`.
void CheckFacts(const std::string& model, int64_t tokens, int64_t pages, double most_density) {
  const std::string finding = "top_pages:pages=" + std::to_string(pages);
  // With one rank nothing travels in either mode.
  std::vector<std::pair<int, RingMode>> rings = {{1, RingMode::kPassKv}};
  for (const int ranks : {3, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      rings.emplace_back(ranks, mode);
    }
  }
  for (const auto& [ranks, mode] : testing::ThinnedIfSanitized(rings, 1)) {
    SCOPED_TRACE(::testing::Message()
                 << ranks << " ranks, " << (mode == RingMode::kPassKv ? "pass-KV" : "pass-Q"));
    const SteadyTime start = std::chrono::steady_clock::now();
    Reader reader(model, tokens, ranks, mode);
    const Reader::Found found = reader.Ask(finding);
    const Reader::Found lost = reader.Ask(kBlind);
    const std::vector<bench::DemoFact>& facts = reader.document().facts;
    std::cout << model << ", " << tokens << " tokens, " << ranks << " ranks, "
              << (mode == RingMode::kPassKv ? "pass-KV" : "pass-Q") << ": " << finding
              << " density " << found.density << " finds " << found.count() << " of "
              << facts.size() << " facts, " << kBlind << " finds " << lost.count() << ", "
              << SecondsBetween(start, std::chrono::steady_clock::now()) << " s" << std::endl;
    ASSERT_EQ(found.facts.size(), facts.size());
    ASSERT_EQ(lost.facts.size(), facts.size());
    EXPECT_LE(found.density, most_density);
    size_t out_of_sight = 0;
    for (size_t i = 0; i < facts.size(); ++i) {
      EXPECT_TRUE(found.facts[i]) << facts[i].depth;
      if (!OutOfSight(facts[i], tokens)) continue;
      ++out_of_sight;
      EXPECT_FALSE(lost.facts[i]) << facts[i].depth;
    }
    // The last may lie within the window.
    EXPECT_GE(out_of_sight, facts.size() - 1);
  }
}

TEST(Facts, TopPagesFindThemAtEveryDepth) {
  if (kThreadSanitizer) GTEST_SKIP() << "about answers; other cases run the same threads";
  // The rows of a prompt attend all in the middle layer, and count.
  const int64_t tokens = Tokens() == kSuiteTokens ? 2500 : Tokens();
  CheckFacts("builtin:recall3", tokens, SomePages(tokens), 1);
}

TEST(Facts, TopPagesFindThemAtEveryDepthThroughTwoLayers) {
  if (kThreadSanitizer) GTEST_SKIP() << "about answers; other cases run the same threads";
  // No row of a prompt attends in the last layer.
  const auto blocks = static_cast<double>(Tokens() / kBlock);
  const int64_t pages = SomePages(Tokens());
  CheckFacts("builtin:recall", Tokens(), pages, static_cast<double>(pages + 1) / blocks);
}

}  // namespace
}  // namespace annulus
