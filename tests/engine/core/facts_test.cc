// Facts at every depth of a document, continued token by token under policies of answers, on rings
// of several degrees in both modes.
//   ANNULUS_RECALL_TOKENS=65536   a longer document than the suite takes

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>

#include "bench/demo/document.h"
#include "engine/api.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"

namespace annulus {
namespace {

using testing::CollectingSink;

constexpr int64_t kSuiteTokens = 9000;

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
    DemoOptions demo{.bytes = tokens, .seed = 6, .depths = {0.01, 0.25, 0.5, 0.75, 0.99}};
    document_ = MakeDemoDocument(demo).value();
    EngineOptions options;
    options.model = model;
    options.ranks = ranks;
    options.threads = 2;
    options.kv_memory_bytes = static_cast<size_t>(tokens + 8192 * ranks) * 3 * 1024;
    options.tokens_per_rank = 256;
    options.ring_mode = mode;
    engine_ = CreateEngine(options, *backend_, registry_).value();
  }

  struct Found {
    int facts = 0;
    double density = 0;  // the mean answer's
  };
  Found Ask(const std::string& policy) {
    Found found;
    for (const DemoFact& fact : document_.facts) {
      RequestSpec spec;
      spec.prompt = engine_->Tokenize(document_.text + fact.cue, true).value();
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
      found.facts += sink->text() == fact.answer;
      found.density += sink->Wait()->attention.density / static_cast<double>(facts());
    }
    return found;
  }
  int facts() const { return static_cast<int>(document_.facts.size()); }

 private:
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  DemoDocument document_;
  std::unique_ptr<Engine> engine_;  // last: it uses the others
};

// The bound of a page of 64 random codes is little higher where one of them is the right one, so a
// quarter of the pages of a long document is attended.
void CheckFacts(const std::string& model, int64_t tokens) {
  const std::string finding =
      "top_pages:pages=" + std::to_string(std::max<int64_t>(16, tokens / 64 / 4));
  const std::string blind = "window:sinks=64,window=512";
  for (const int ranks : {1, 3, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      if (ranks == 1 && mode == RingMode::kPassQ) continue;  // nothing travels in either mode
      if (kSanitized && ranks != 3) continue;
      Reader reader(model, tokens, ranks, mode);
      const Reader::Found found = reader.Ask(finding);
      const Reader::Found lost = reader.Ask(blind);
      std::cout << model << ", " << tokens << " tokens, " << ranks << " ranks, "
                << (mode == RingMode::kPassKv ? "pass-KV" : "pass-Q") << ": " << finding
                << " density " << found.density << " finds " << found.facts << " of "
                << reader.facts() << " facts, " << blind << " finds " << lost.facts << std::endl;
      EXPECT_EQ(found.facts, reader.facts()) << ranks;
      EXPECT_LT(lost.facts, reader.facts()) << ranks;  // the control
    }
  }
}

TEST(Facts, TopPagesFindThemAtEveryDepth) {
  if (kThreadSanitizer) GTEST_SKIP() << "about answers; other cases run the same threads";
  CheckFacts("builtin:recall3", Tokens() == kSuiteTokens ? 2500 : Tokens());
}

TEST(Facts, TopPagesFindThemAtEveryDepthThroughTwoLayers) {
  if (kThreadSanitizer) GTEST_SKIP() << "about answers; other cases run the same threads";
  CheckFacts("builtin:recall", Tokens());
}

}  // namespace
}  // namespace annulus
