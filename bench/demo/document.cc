#include "bench/demo/document.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/demo/prose.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr size_t kMaxFacts = 1000;
constexpr int64_t kMaxBytes = 1'000'000'000;

// A cue ends with the drawn name, so that the context of the first answer byte belongs to one fact.
// Names in capitals set facts apart from the other records in whole channels of the recall model's
// keys (ContextCode), which is what block summaries of sparse attention can see.
constexpr absl::string_view kCues[] = {
    "The lighthouse keeper painted the lamp code on the door of {PLACE}: ",
    "The harbour ledger gives the mooring number of the ferry at {PLACE}: ",
    "A brass plate shows the strongroom cipher of {PLACE}: ",
    "The pilot's handbook notes the fog signal of {PLACE}: ",
    "On the old chart one finds the sounding mark of {PLACE}: ",
};
constexpr absl::string_view kAnswer = "{digits}-{word}.";

using Contexts = std::unordered_set<uint64_t>;

uint64_t ContextAt(absl::string_view text, size_t begin) {
  static_assert(kDemoContextBytes == sizeof(uint64_t));
  uint64_t context;
  std::memcpy(&context, text.data() + begin, sizeof(context));
  return context;
}

// Calls visit(context, end) for every context of `line`; `end` is the index of the byte after it.
template <typename Visit>
void ForEachContext(absl::string_view line, Visit visit) {
  for (size_t end = kDemoContextBytes; end <= line.size(); ++end) {
    visit(ContextAt(line, end - kDemoContextBytes), end);
  }
}

bool Mentions(absl::string_view line, const Contexts& contexts) {
  bool found = false;
  ForEachContext(line, [&](uint64_t context, size_t) { found |= contexts.contains(context); });
  return found;
}

// The facts of a document and the contexts that only they may hold. A context never spans a line
// end, because no answer holds one; so records can be checked one at a time.
class FactSet {
 public:
  explicit FactSet(Prose& prose) : prose_(prose) {}

  // Draws until the new fact shares no context with the others, in either direction.
  void Add(double depth) {
    while (true) {
      DemoFact fact{.depth = depth,
                    .cue = prose_.Expand(kCues[facts_.size() % std::size(kCues)]),
                    .answer = prose_.Expand(kAnswer)};
      if (TryReserve(fact.cue, absl::StrCat(fact.cue, fact.answer))) {
        facts_.push_back(std::move(fact));
        return;
      }
    }
  }

  const Contexts& reserved() const { return reserved_; }
  std::vector<DemoFact> Take() { return std::move(facts_); }

 private:
  bool TryReserve(absl::string_view cue, absl::string_view line) {
    if (Mentions(line, reserved_)) return false;
    Contexts all, own;
    bool distinct = true;
    ForEachContext(line, [&](uint64_t context, size_t end) {
      distinct &= all.insert(context).second;
      if (end >= cue.size()) own.insert(context);
    });
    const bool seen_elsewhere = std::any_of(own.begin(), own.end(), [this](uint64_t context) {
      return all_fact_contexts_.contains(context);
    });
    if (!distinct || seen_elsewhere) return false;
    reserved_.merge(own);
    all_fact_contexts_.merge(all);
    return true;
  }

  Prose& prose_;
  std::vector<DemoFact> facts_;
  Contexts reserved_;           // before an answer byte of some fact
  Contexts all_fact_contexts_;  // anywhere in the line of some fact
};

int64_t LineBytes(const DemoFact& fact) {
  return static_cast<int64_t>(fact.cue.size() + fact.answer.size() + 1);
}

std::string OrdinaryRecord(Prose& prose, const Contexts& reserved) {
  while (true) {
    std::string record = prose.Sentence();
    if (!Mentions(record, reserved)) return record;
  }
}

// Appends whole records while they end at or before `limit`, and returns the first that does not.
std::string FillUpTo(int64_t limit, Prose& prose, const Contexts& reserved, std::string& text) {
  while (true) {
    std::string record = OrdinaryRecord(prose, reserved);
    if (static_cast<int64_t>(text.size() + record.size() + 1) > limit) return record;
    absl::StrAppend(&text, record, "\n");
  }
}

// Ends the document at exactly `bytes`: the last record breaks off.
void Close(int64_t bytes, Prose& prose, const Contexts& reserved, std::string& text) {
  const std::string record = FillUpTo(bytes, prose, reserved, text);
  const size_t left = static_cast<size_t>(bytes) - text.size();
  if (left == 0) return;
  text.append(record, 0, left - 1);
  text.push_back('\n');
}

absl::Status Validate(const DemoOptions& options) {
  if (options.bytes < 1 || options.bytes > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("document size is ", options.bytes, " bytes, allowed is 1 to ", kMaxBytes));
  }
  for (const double depth : options.depths) {
    if (!(depth >= 0 && depth <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("fact depth is ", depth, ", allowed is 0 (the beginning) to 1 (the end)"));
    }
  }
  if (options.depths.size() > kMaxFacts) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.depths.size(), " facts asked for, allowed are up to ", kMaxFacts));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DemoDocument> MakeDemoDocument(const DemoOptions& options) {
  ANNULUS_RETURN_IF_ERROR(Validate(options));
  std::vector<double> depths = options.depths;
  std::sort(depths.begin(), depths.end());

  Prose prose(options.seed);
  FactSet fact_set(prose);
  for (const double depth : depths) fact_set.Add(depth);

  DemoDocument document;
  document.facts = fact_set.Take();
  int64_t fact_bytes = 0;
  for (const DemoFact& fact : document.facts) fact_bytes += LineBytes(fact);
  if (fact_bytes > options.bytes) {
    return absl::InvalidArgumentError(absl::StrCat(depths.size(), " facts need ", fact_bytes,
                                                   " bytes, the document has ", options.bytes));
  }

  document.text.reserve(static_cast<size_t>(options.bytes));
  for (DemoFact& fact : document.facts) {
    const auto wanted = static_cast<int64_t>(fact.depth * static_cast<double>(options.bytes));
    FillUpTo(std::min(wanted, options.bytes - fact_bytes), prose, fact_set.reserved(),
             document.text);
    fact.offset = static_cast<int64_t>(document.text.size());
    absl::StrAppend(&document.text, fact.cue, fact.answer, "\n");
    fact_bytes -= LineBytes(fact);
  }
  Close(options.bytes, prose, fact_set.reserved(), document.text);
  return document;
}

}  // namespace annulus::bench
