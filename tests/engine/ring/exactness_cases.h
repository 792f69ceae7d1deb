#ifndef ANNULUS_TESTS_ENGINE_RING_EXACTNESS_CASES_H_
#define ANNULUS_TESTS_ENGINE_RING_EXACTNESS_CASES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/scheduler/placement.h"
#include "tests/engine/ring/exact_attention.h"
#include "tests/engine/ring/ring_world.h"

// What can differ between two rings, and a scenario for each combination of it.

namespace annulus::testing {

struct Heads {
  int heads, kv_heads, dim;
};

// What lies around the first sequence.
enum PageLayout {
  kFresh,         // alone, striped over all ranks
  kMixedDegrees,  // two more sequences with smaller rings, in the same steps
  kGrown,         // its ring grows from half of the ranks to all midway: shards lie on several
  kSharedPrefix,  // it continues the pages of another; its other shards lie on other ranks
  kMoved,         // each shard lies on any rank
};

// The axes.
inline constexpr std::array kRanks = {1, 2, 3, 4, 5, 6, 7, 8};
inline constexpr std::array kModes = {RingMode::kPassKv, RingMode::kPassQ};
inline constexpr std::array kPages = {16, 64, 128};
inline constexpr std::array kDTypes = {DType::kF32,    DType::kBF16,   DType::kF16,
                                       DType::kF8E4M3, DType::kF8E5M2, DType::kI8};
inline constexpr std::array kLengths = {"0",       "1",     "page-1",  "page",     "page+1",
                                        "chunk-1", "chunk", "chunk+1", "stripe+5", "211"};
inline constexpr std::array kChunks = {"37", "page", "2page+5"};
inline constexpr std::array kHeads = {Heads{4, 4, 16}, Heads{4, 2, 32}, Heads{6, 1, 16},
                                      Heads{6, 2, 64}};
inline constexpr std::array kWindows = {"full", "7", "page+3"};
inline constexpr std::array kLayouts = {kFresh, kMixedDegrees, kGrown, kSharedPrefix, kMoved};
inline constexpr std::array kLayoutNames = {"fresh", "mixed degrees", "grown", "shared prefix",
                                            "moved"};

struct ExactCase {
  int ranks;
  RingMode mode;
  RingShape shape;
  int chunk;
  int length;
  PageLayout layout;
  std::string table;
  std::string name;

  // Whether its rows have the bits of OnOneRank: not if its shards lie on several ranks.
  bool equals_one_rank() const { return layout != kGrown || ranks == 1; }
  // The same rows on a ring of one, in chunks of another size.
  ExactCase OnOneRank() const {
    ExactCase alone = *this;
    alone.ranks = 1;
    alone.chunk = chunk + 11;
    return alone;
  }
};

// What cases are made of on this machine.
class ExactCases {
 public:
  ExactCases() : backend_(CreateCpuBackend().value()) {
    RegisterCpuKernels(registry_);
    tables_ = registry_.Available("cpu");
    for (const size_t size :
         {kRanks.size(), kModes.size(), kPages.size(), kDTypes.size(), kLengths.size(),
          kChunks.size(), kHeads.size(), kWindows.size(), kLayouts.size(), tables_.size()}) {
      sizes_.push_back(static_cast<int>(size));
    }
  }

  Backend& backend() const { return *backend_; }
  // [axis] of how many values a case has one.
  const std::vector<int>& sizes() const { return sizes_; }

  // `v`: [axis] index of a value.
  ExactCase CaseOf(const std::vector<int>& v) const {
    ExactCase c;
    c.ranks = kRanks[v[0]];
    c.mode = kModes[v[1]];
    const int page = kPages[v[2]];
    c.chunk = std::array{37, page, 2 * page + 5}[v[5]];
    c.length = std::array{0,       1,           page - 1,           page, page + 1, c.chunk - 1,
                          c.chunk, c.chunk + 1, page * c.ranks + 5, 211}[v[4]];
    const Heads heads = kHeads[v[6]];
    c.shape.heads = heads.heads;
    c.shape.kv_heads = heads.kv_heads;
    c.shape.k_dim = c.shape.v_dim = heads.dim;
    c.shape.page_tokens = page;
    c.shape.window = std::array{0, 7, page + 3}[v[7]];
    c.shape.dtype = kDTypes[v[3]];
    c.layout = kLayouts[v[8]];
    c.table = tables_[v[9]]->name;
    c.name = absl::StrCat(
        c.table, ", ", c.ranks, " ranks, ", c.mode == RingMode::kPassKv ? "pass-KV" : "pass-Q",
        ", pages of ", page, ", ", DTypeName(c.shape.dtype), ", length ", kLengths[v[4]], "=",
        c.length, ", chunk ", c.chunk, ", heads ", heads.heads, "/", heads.kv_heads, " of ",
        heads.dim, ", window ", kWindows[v[7]], ", ", kLayoutNames[v[8]]);
    return c;
  }

  absl::StatusOr<const OpTable*> OpsOf(const ExactCase& c) const {
    KernelRequirements required;
    required.implementation = c.table;
    required.kv_dtype = c.shape.dtype;
    required.k_dim = c.shape.k_dim;
    required.v_dim = c.shape.v_dim;
    return registry_.Select(required);
  }

 private:
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  std::vector<const OpTable*> tables_;
  std::vector<int> sizes_;
};

// A sequence on its way through the steps of a case.
struct Progress {
  RingSequence sequence;
  RingMode mode = RingMode::kPassKv;
  std::vector<int32_t> early_ring;  // up to `grows_at` positions
  std::vector<int32_t> ring;
  int32_t grows_at = 0;
  int home = 0;             // ring index
  int waits_for = -1;       // another sequence, until `written` of it are there
  int32_t waits_until = 0;  // positions
  std::vector<std::pair<RingRows, RingOutput>> done;

  bool finished() const { return sequence.written >= sequence.length; }
};

class Scenario {
 public:
  // `ring`, `local`: see RingWorld.
  Scenario(const ExactCase& c, const OpTable& ops, Backend& backend, uint64_t seed,
           std::unique_ptr<RingGroup> ring = nullptr, std::vector<int32_t> local = {})
      : case_(c),
        random_(seed),
        placing_(seed),
        world_(c.ranks, c.shape, ops, backend, std::move(ring), std::move(local)) {
    const RingMode other = c.mode == RingMode::kPassKv ? RingMode::kPassQ : RingMode::kPassKv;
    const std::vector<int32_t> all = AllRanks(c.ranks);
    const std::vector<int32_t> half(all.begin(), all.begin() + (c.ranks + 1) / 2);
    if (c.layout == kSharedPrefix) {
      AddShared(half);
      return;
    }
    Add(c.length, c.mode, all, c.layout == kGrown ? half : all);
    if (c.layout != kMixedDegrees) return;
    Add(c.shape.page_tokens + 3, other, {c.ranks - 1}, {c.ranks - 1});
    // A ring that is neither whole nor in ascending order.
    const std::vector<int32_t> some =
        c.ranks > 1 ? std::vector<int32_t>{c.ranks - 1, 0} : std::vector<int32_t>{0};
    Add(2 * c.shape.page_tokens + 7, other, some, some);
  }

  void Run() {
    while (true) {
      std::vector<RingRows> rows;
      std::vector<size_t> whose;
      for (size_t i = 0; i < sequences_.size(); ++i) PlanNext(i, rows, whose);
      if (rows.empty()) return;
      const std::vector<RingOutput> outputs = world_.Run(rows);
      for (size_t n = 0; n < rows.size(); ++n) {
        sequences_[whose[n]].done.emplace_back(rows[n], outputs[n]);
      }
    }
  }

  // Every row has the bits that it has in `other`, whose sequences are the same.
  void ExpectSameBits(const Scenario& other) const {
    ASSERT_EQ(sequences_.size(), other.sequences_.size());
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const auto expected = RowsOf(other.sequences_[i]);
      for (const auto& [position, row] : RowsOf(sequences_[i])) {
        ASSERT_EQ(row, expected.at(position)) << "sequence " << i << " row " << position;
      }
    }
  }

  // How many rows were computed here.
  size_t rows() const {
    size_t rows = 0;
    for (const Progress& p : sequences_) rows += RowsOf(p).size();
    return rows;
  }

  // `operand`: see Tolerance.
  void Check(double operand) {
    for (const Progress& p : sequences_) {
      std::vector<float> key, value;
      world_.ReadBack(p.sequence, key, value);
      ASSERT_NO_FATAL_FAILURE(CheckStorage(p.sequence.key, key, case_.shape.k_dim));
      ASSERT_NO_FATAL_FAILURE(CheckStorage(p.sequence.value, value, case_.shape.v_dim));
      for (const auto& [rows, output] : p.done) {
        ASSERT_NO_FATAL_FAILURE(ExpectExact(case_.shape, p.sequence.query, key, value, rows, output,
                                            operand, case_.ranks));
      }
    }
  }

 private:
  // [position] o and lse of a row that was computed here.
  std::map<int32_t, std::vector<float>> RowsOf(const Progress& p) const {
    const int64_t columns = case_.shape.output_columns();
    const int64_t heads = case_.shape.heads;
    std::map<int32_t, std::vector<float>> all;
    for (const auto& [rows, output] : p.done) {
      for (int32_t position = rows.begin; position < rows.end; ++position) {
        const int64_t n = position - rows.begin;
        if (!output.here[n]) continue;
        std::vector<float>& row = all[position];
        row.assign(output.o.begin() + n * columns, output.o.begin() + (n + 1) * columns);
        row.insert(row.end(), output.lse.begin() + n * heads, output.lse.begin() + (n + 1) * heads);
      }
    }
    return all;
  }

  int Pick(size_t count) {
    return std::uniform_int_distribution<int>(0, static_cast<int>(count) - 1)(placing_);
  }

  int ShardOf(int32_t page) const { return page % case_.shape.shards; }

  // Pages before the middle lie on `early`, the others on `ring`.
  void Add(int32_t length, RingMode mode, const std::vector<int32_t>& ring,
           const std::vector<int32_t>& early) {
    const int32_t page = case_.shape.page_tokens;
    Progress p;
    p.mode = mode;
    p.ring = ring;
    p.early_ring = early;
    p.grows_at = (length / page + 1) / 2 * page;
    p.home = Pick(early.size());
    std::vector<int32_t> moved;  // [shard]
    for (int s = 0; s < case_.shape.shards; ++s) moved.push_back(ring[Pick(ring.size())]);
    const auto place = [&](int32_t u) {
      if (case_.layout == kMoved) return moved[ShardOf(u)];
      const std::vector<int32_t>& on = u * page < p.grows_at ? early : ring;
      return on[PlaceOnRing(u * page, page, static_cast<int>(on.size()), case_.shape.shards)];
    };
    p.sequence = world_.MakeSequence(length, place, random_);
    sequences_.push_back(std::move(p));
  }

  // The first sequence holds two pages on `holders`; the one under test continues after them.
  // Shards with such a page stay where they are, the others lie on the ranks from the last holder
  // on.
  void AddShared(const std::vector<int32_t>& holders) {
    const int32_t page = case_.shape.page_tokens;
    Add(2 * page + 1, RingMode::kPassKv, holders, holders);
    Progress p;
    p.mode = case_.mode;
    p.ring = p.early_ring = AllRanks(case_.ranks);
    p.home = Pick(case_.ranks);
    p.waits_for = 0;
    p.waits_until = 2 * page;
    const int32_t first = holders.back();
    const std::vector<PageEntry>& shared = sequences_[0].sequence.table;
    const auto place = [&](int32_t u) {
      if (ShardOf(u) < 2) return shared[ShardOf(u)].rank;
      return first + ShardOf(u) % (case_.ranks - first);
    };
    p.sequence =
        world_.Continue(sequences_[0].sequence, 2 * page, 2 * page + case_.length, place, random_);
    sequences_.push_back(std::move(p));
  }

  // The next chunk; the last row of a sequence is sampled, in the same step as the rows before it.
  void PlanNext(size_t i, std::vector<RingRows>& rows, std::vector<size_t>& whose) {
    Progress& p = sequences_[i];
    if (p.finished()) return;
    if (p.waits_for >= 0 && sequences_[p.waits_for].sequence.written < p.waits_until) return;
    const int32_t begin = p.sequence.written;
    const int32_t last = p.sequence.length - 1;
    const int32_t end = std::min(begin + case_.chunk, last);
    const bool samples = end == last;
    const int32_t reach = samples ? p.sequence.length : end;
    const std::vector<int32_t>& ring = reach <= p.grows_at ? p.early_ring : p.ring;
    if (end > begin) {
      rows.push_back({&p.sequence, ring, begin, end, p.mode, false, 0});
      whose.push_back(i);
    }
    if (samples) {
      rows.push_back({&p.sequence, ring, last, last + 1, RingMode::kPassQ, true, p.home});
      whose.push_back(i);
    }
  }

  // Pages hold what was written, rounded once.
  void CheckStorage(const std::vector<float>& given, const std::vector<float>& stored, int dim) {
    ASSERT_EQ(given.size(), stored.size());
    for (size_t head = 0; head < given.size(); head += dim) {
      double largest = 0;
      for (int d = 0; d < dim; ++d) largest = std::max<double>(largest, std::abs(given[head + d]));
      for (int d = 0; d < dim; ++d) {
        ASSERT_NEAR(stored[head + d], given[head + d],
                    StorageTolerance(case_.shape.dtype, given[head + d], largest));
      }
    }
  }

  const ExactCase& case_;
  std::mt19937 random_;   // of keys, values and queries: the same for every ring
  std::mt19937 placing_;  // of homes and ranks
  RingWorld world_;
  std::vector<Progress> sequences_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_RING_EXACTNESS_CASES_H_
