#include "engine/grammar/compiler/machine_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/compiler/output_compiler.h"
#include "engine/grammar/grammar_caches.h"
#include "tests/engine/grammar/grammar_text.h"

namespace annulus {
namespace {

using testing::ChoicesConstraint;
using testing::Compile;
using testing::RegexConstraint;
using testing::SmallVocabulary;

TEST(MachineCache, FindsWhatTheSameTenantCompiled) {
  const TenantId tenant;
  const TenantId other = TenantId::FromName("other").value();
  MachineCache cache;
  const auto machine = Compile(RegexConstraint("a+")).value();
  cache.Keep(tenant, RegexConstraint("a+"), machine);
  EXPECT_EQ(cache.Find(tenant, RegexConstraint("a+")), machine);
  EXPECT_EQ(cache.Find(tenant, RegexConstraint("a")), nullptr);
  EXPECT_EQ(cache.Find(tenant, ChoicesConstraint({"a+"})), nullptr);
  EXPECT_EQ(cache.Find(other, RegexConstraint("a+")), nullptr);
  const size_t bytes = cache.bytes();
  cache.Keep(tenant, RegexConstraint("a+"), Compile(RegexConstraint("a+")).value());
  EXPECT_EQ(cache.Find(tenant, RegexConstraint("a+")), machine);
  EXPECT_EQ(cache.bytes(), bytes);
}

TEST(MachineCache, TheLeastRecentlyUsedLeave) {
  const TenantId tenant;
  const auto machine = Compile(RegexConstraint("a")).value();
  MachineCache one;
  one.Keep(tenant, RegexConstraint("0"), machine);
  const size_t each = one.bytes();
  MachineCache cache(5 * each);
  for (int i = 0; i < 10; ++i) {
    cache.Keep(tenant, RegexConstraint(absl::StrCat(i)), machine);
    EXPECT_NE(cache.Find(tenant, RegexConstraint("0")), nullptr) << i;
    EXPECT_LE(cache.bytes(), 5 * each);
  }
  EXPECT_EQ(cache.Find(tenant, RegexConstraint("1")), nullptr);
  EXPECT_NE(cache.Find(tenant, RegexConstraint("9")), nullptr);
  MachineCache small(3 * each);
  small.Keep(tenant, RegexConstraint("0"), machine);
  EXPECT_EQ(small.bytes(), 0u) << "it would take a third of the room";
}

TEST(OutputCompiler, CompilesOnceAndAsksForTheMemoryEachTime) {
  class Counting final : public MemoryGrant {
   public:
    absl::Status Allow(size_t wanted) override {
      bytes = std::max(bytes, wanted);
      return absl::OkStatus();
    }
    size_t bytes = 0;
  };
  const SmallVocabulary vocabulary;
  OutputCompiler compiler(vocabulary.trie);
  const auto compile = [&](MemoryGrant& memory) {
    return compiler.Compile(TenantId(), RegexConstraint("a{1,9}b"), CancelFlag::Never(), memory);
  };
  Counting first;
  Counting second;
  const auto machine = compile(first);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(*compile(second), *machine);
  EXPECT_GT(first.bytes, 0u);
  EXPECT_EQ(second.bytes, MachineBytes(**machine));
}

TEST(GrammarCaches, MatchersOfOneMachineShareACacheWhileItIsUsed) {
  const SmallVocabulary vocabulary;
  GrammarCaches caches(vocabulary.trie, size_t{1} << 20);
  const auto machine = Compile(ChoicesConstraint({"yes", "no"})).value();
  const std::vector<int32_t> ends = {vocabulary.end};
  {
    const GrammarMatcher one = caches.NewMatcher(machine, ends);
    EXPECT_EQ(machine.use_count(), 2);
    GrammarMatcher two = caches.NewMatcher(machine, ends);
    EXPECT_EQ(machine.use_count(), 2);
    ASSERT_TRUE(*two.Advance('y'));
    EXPECT_EQ(two.OnlyToken().value(), 'e');
    EXPECT_EQ(one.OnlyToken().value(), std::nullopt);
  }
  EXPECT_EQ(machine.use_count(), 1);
  EXPECT_EQ(caches.NewMatcher(machine, ends).OnlyToken().value(), std::nullopt);
}

}  // namespace
}  // namespace annulus
