// The JSON Schema Test Suite (draft 7, Debian's json-schema-test-suite): every valid instance of a
// supported schema is accepted byte by byte and by random tokenizations, every invalid one is
// refused at a byte, and schemas with other keywords are refused by their names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/grammar/compiler/json_tree.h"
#include "tests/engine/grammar/grammar_text.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::Accepts;
using ::testing::HasSubstr;
using testing::SmallVocabulary;

constexpr char kSuite[] = "/usr/share/json-schema-test-suite/tests/draft7";
constexpr int kTokenizations = 1000;

// Keywords of draft 7 outside of the subset.
const std::set<std::string>& Unsupported() {
  static const auto& keywords = *new std::set<std::string>{"additionalItems",
                                                           "contains",
                                                           "dependencies",
                                                           "if",
                                                           "then",
                                                           "else",
                                                           "not",
                                                           "maxProperties",
                                                           "multipleOf",
                                                           "minProperties",
                                                           "propertyNames",
                                                           "$id",
                                                           "uniqueItems"};
  return keywords;
}

// Schemas without such keywords that the subset refuses too; by "file: description".
struct Refusal {
  const char* name;
  const char* words;
};
constexpr Refusal kRefusals[] = {
    {"definitions: valid definition", "#/$ref is"},  // of other documents
    {"definitions: invalid definition", "#/$ref is"},
    {"ref: remote ref, containing refs itself", "#/$ref is"},
    {"refRemote: remote ref", "#/$ref is"},
    {"refRemote: fragment within remote ref", "#/$ref is"},
    {"refRemote: ref within remote ref", "#/$ref is"},
    {"ref: escaped pointer ref", "#/tilda~0field is a keyword"},
    {"oneOf: oneOf", "that can both match"},
    {"oneOf: oneOf with base schema", "that can both match"},
    {"oneOf: oneOf with boolean schemas, all true", "that can both match"},
    {"oneOf: oneOf with boolean schemas, more than one true", "that can both match"},
    {"oneOf: oneOf complex types", "that can both match"},
    {"patternProperties: patternProperties validates properties matching a regex",
     "#/patternProperties/f.*o is a pattern"},
    {"patternProperties: multiple simultaneous patternProperties are validated",
     "#/patternProperties/a* is a pattern"},
    {"patternProperties: regexes are not anchored by default and are case sensitive",
     "#/patternProperties/[0-9]{2,} is a pattern"},
    {"patternProperties: patternProperties with boolean schemas",
     "#/patternProperties/f.* is a pattern"},
    {"properties: properties, patternProperties, additionalProperties interaction",
     "#/patternProperties/f.o is a pattern"},
};

// Instances for which the subset differs from draft 7; by "file: schema: instance". Since draft
// 2019-09, keywords beside $ref count.
constexpr const char* kDifferences[] = {
    "ref: ref overrides any sibling keywords: ref valid, maxItems ignored",
};

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// A value as texts, one for each order of members (some of them if there are many): the subset
// fixes the order, and which one the schema says is not looked at here.
std::vector<std::string> Texts(const JsonTree& value) {
  constexpr size_t kMost = 200;
  if (!value.is_array() && !value.is_object()) return {CompactJson(value, false)};
  std::vector<size_t> order(value.items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<std::string> texts;
  do {
    std::vector<std::string> some{value.is_array() ? "[" : "{"};
    for (const size_t i : order) {
      std::vector<std::string> longer;
      for (const std::string& before : some) {
        for (const std::string& item : Texts(value.items[i])) {
          if (longer.size() == kMost) break;
          longer.push_back(absl::StrCat(
              before, before.size() > 1 ? "," : "",
              value.is_object() ? absl::StrCat(JsonQuoted(value.members->keys[i]), ":") : "",
              item));
        }
      }
      some = std::move(longer);
    }
    for (const std::string& text : some) texts.push_back(text + (value.is_array() ? "]" : "}"));
  } while (value.is_object() && texts.size() < kMost &&
           std::next_permutation(order.begin(), order.end()));
  return texts;
}

// A vocabulary of pieces of the texts.
SmallVocabulary VocabularyOf(const std::vector<std::string>& texts, std::mt19937_64& random) {
  std::set<std::string> pieces;
  for (int i = 0; i < 300 && !texts.empty(); ++i) {
    const std::string& text = texts[random() % texts.size()];
    const size_t begin = random() % text.size();
    const std::string piece = text.substr(begin, 2 + random() % 6);
    if (piece.size() > 1) pieces.insert(piece);
  }
  return SmallVocabulary(std::vector<std::string>(pieces.begin(), pieces.end()));
}

// Reads the text as random tokens, each of which the mask must allow.
bool AcceptsRandomTokens(GrammarMatcher matcher, const SmallVocabulary& vocabulary,
                         absl::string_view text, std::mt19937_64& random) {
  while (!text.empty()) {
    std::vector<int32_t> fitting{static_cast<uint8_t>(text[0])};
    for (size_t id = 256; id < vocabulary.tokens.size(); ++id) {
      if (text.substr(0, vocabulary.tokens[id].size()) == vocabulary.tokens[id]) {
        fitting.push_back(static_cast<int32_t>(id));
      }
    }
    const int32_t id = fitting[random() % fitting.size()];
    const auto mask = matcher.Mask();
    if (!mask.ok() || (mask->words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) {
      return false;
    }
    if (!*matcher.Advance(id)) return false;
    text.remove_prefix(vocabulary.tokens[static_cast<size_t>(id)].size());
  }
  const auto mask = matcher.Mask();
  return mask.ok() &&
         (mask->words[static_cast<size_t>(vocabulary.end) / 32] >> (vocabulary.end % 32) & 1) != 0;
}

bool Differs(const std::string& name) {
  return std::find(std::begin(kDifferences), std::end(kDifferences), name) !=
         std::end(kDifferences);
}

struct Counts {
  int schemas = 0;
  int supported = 0;
  int valid = 0;
  int invalid = 0;
};

void CheckInstances(const std::string& name, const JsonTree& group, const OutputConstraint& schema,
                    Counts* counts) {
  std::mt19937_64 random(testing::TestSeed());
  std::vector<std::string> all;
  for (const JsonTree& test : group.Find("tests")->items) {
    for (const std::string& text : Texts(*test.Find("data"))) all.push_back(text);
  }
  const SmallVocabulary vocabulary = VocabularyOf(all, random);
  const auto cache = testing::NewCache(schema, vocabulary);
  if (cache == nullptr) return;
  const GrammarMatcher start(cache);
  for (const JsonTree& test : group.Find("tests")->items) {
    const std::string instance = absl::StrCat(name, ": ", test.Find("description")->text);
    if (Differs(instance)) continue;
    const bool valid = test.Find("valid")->kind == JsonTree::Kind::kTrue;
    ++(valid ? counts->valid : counts->invalid);
    std::vector<std::string> accepted;
    for (const std::string& text : Texts(*test.Find("data"))) {
      if (Accepts(start, text)) accepted.push_back(text);
    }
    EXPECT_EQ(!accepted.empty(), valid) << instance << "\n" << schema.text;
    for (int i = 0; i < kTokenizations && !accepted.empty(); ++i) {
      ASSERT_TRUE(AcceptsRandomTokens(start, vocabulary, accepted.front(), random)) << instance;
    }
  }
}

void CheckRefusal(const std::string& name, const JsonTree& group, const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
  const std::string message(status.message());
  if (message.find("no text satisfies") != std::string::npos) {
    for (const JsonTree& test : group.Find("tests")->items) {
      EXPECT_EQ(test.Find("valid")->kind, JsonTree::Kind::kFalse) << name;
    }
    return;
  }
  for (const Refusal& refusal : kRefusals) {
    if (name != refusal.name) continue;
    EXPECT_THAT(message, HasSubstr(refusal.words)) << name;
    return;
  }
  const bool by_name =
      std::any_of(Unsupported().begin(), Unsupported().end(), [&](const std::string& keyword) {
        return message.find(absl::StrCat("/", keyword, " is a keyword that is not supported")) !=
               std::string::npos;
      });
  EXPECT_TRUE(by_name) << name << "\n" << message;
}

TEST(SchemaSuite, Draft7) {
  if (!std::filesystem::exists(kSuite)) {
    GTEST_SKIP() << "json-schema-test-suite is not installed: bash deploy/setup.sh test";
  }
  Counts counts;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(kSuite)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    size_t bytes = 0;
    WorkMeter work("the suite", kCompileSteps, CancelFlag::Never());
    const auto groups =
        ParseOrderedJson(ReadFile(file), file.string(), &work, &MemoryGrant::Unlimited(), &bytes);
    ASSERT_TRUE(groups.ok()) << groups.status();
    for (const JsonTree& group : groups->items) {
      const std::string name =
          absl::StrCat(file.stem().string(), ": ", group.Find("description")->text);
      const auto schema =
          testing::SchemaConstraint(CompactJson(*group.Find("schema"), /*sorted=*/false));
      ++counts.schemas;
      const auto machine = testing::Compile(schema);
      if (!machine.ok()) {
        CheckRefusal(name, group, machine.status());
        continue;
      }
      ++counts.supported;
      CheckInstances(name, group, schema, &counts);
    }
  }
  std::cout << counts.schemas << " schemas, of which " << counts.supported
            << " are supported, with " << counts.valid << " valid and " << counts.invalid
            << " invalid instances\n";
  EXPECT_GT(counts.supported, 60);
}

}  // namespace
}  // namespace annulus
