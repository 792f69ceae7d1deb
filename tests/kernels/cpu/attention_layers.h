#ifndef ANNULUS_TESTS_KERNELS_CPU_ATTENTION_LAYERS_H_
#define ANNULUS_TESTS_KERNELS_CPU_ATTENTION_LAYERS_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/kernels/cpu/attention_fixture.h"

namespace annulus::testing {

// Rows of a step, item by item.
struct LayerCase {
  std::string name;
  Problem problem;
  int64_t item_rows = 0;  // of every item; all attend the same pages
  std::vector<DilatedBranch> branches;
  // Block lists; of all pages if they are empty.
  std::vector<int32_t> block_rows, offsets, listed;

  BlockLists lists() const {
    if (offsets.empty()) return {};
    return {false, 1, block_rows, offsets, listed};
  }
};

// `rows` consecutive rows, the last of them at the last of `tokens` keys.
inline LayerCase MakeLayerCase(std::string name, DType dtype, int64_t tokens, int64_t rows,
                               int64_t item_rows) {
  LayerCase made;
  made.name = std::move(name);
  Problem& problem = made.problem;
  problem.shape = {.page_tokens = 16, .kv_heads = 2, .k_dim = 24, .v_dim = 20, .dtype = dtype};
  problem.group = 3;
  problem.end = tokens;
  problem.positions = Consecutive(tokens - rows, rows);
  made.item_rows = item_rows;
  FillProblem(problem, 800);
  return made;
}

// Every way in which a call is cut into work.
inline std::vector<LayerCase> LayerCases() {
  std::vector<LayerCase> cases;
  cases.push_back(MakeLayerCase("a row", DType::kBF16, 1000, 1, 1));
  cases.push_back(MakeLayerCase("a prompt", DType::kF32, 400, 300, 300));
  cases.push_back(MakeLayerCase("8-bit pages", DType::kI8, 400, 150, 150));
  cases.push_back(MakeLayerCase("rows that share pages", DType::kBF16, 600, 8, 1));
  cases.push_back(MakeLayerCase("a window", DType::kBF16, 600, 150, 150));
  cases.back().problem.window = 70;
  LayerCase& listed = cases.emplace_back(MakeLayerCase("lists", DType::kBF16, 640, 128, 128));
  listed.block_rows = {0, 64, 128};
  listed.offsets = {0, 3, 7};
  listed.listed = {0, 8, 35, 0, 3, 36, 39};
  cases.push_back(MakeLayerCase("branches", DType::kBF16, 1000, 200, 100));
  cases.back().branches = {{64, 1}, {128, 2}, {1024, 4}};
  return cases;
}

// The attention calls of two layers of a step: their queries, keys, values and states differ.
class AttentionLayers {
 public:
  AttentionLayers(const OpTable& table, const LayerCase& of)
      : problems_{of.problem, Again(of.problem)},
        pages_{{table, problems_[0]}, {table, problems_[1]}},
        first_(Address(0) < Address(1) ? 0 : 1) {
    AttentionResult later(of.problem);
    const int64_t rows = of.problem.rows();
    for (int64_t begin = 0; begin < rows; begin += of.item_rows) {
      const int64_t count = std::min(of.item_rows, rows - begin);
      items_.push_back(MakeItem(problems_[0], pages_[first_], begin, count, later));
      items_.back().blocks = of.lists();
      items_.back().branches = of.branches;
    }
  }
  AttentionLayers(const AttentionLayers&) = delete;

  // The call of layer 0 or 1, which fills `result`. Valid until the next.
  AttentionParams Call(int layer, AttentionResult& result,
                       std::unique_ptr<AttentionLayout>* layout) {
    const int of = layer ^ first_;
    int64_t begin = 0;
    for (AttentionItem& item : items_) {
      const int64_t rows = std::ssize(item.positions);
      item.query = problems_[of].query.view().row_range(begin, rows);
      item.state = result.rows(begin, rows);
      item.page_offset = Address(of) - Address(first_);
      begin += rows;
    }
    AttentionParams params = MakeParams(problems_[of], items_);
    params.layout = layout;
    return params;
  }

 private:
  static Problem Again(Problem problem) {
    FillProblem(problem, 801);
    return problem;
  }
  uintptr_t Address(int of) const {
    return reinterpret_cast<uintptr_t>(pages_[of].views().front().data);
  }

  const Problem problems_[2];
  const PagedSequence pages_[2];
  const int first_;  // whose pages have the lower addresses: layer 0
  std::vector<AttentionItem> items_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_KERNELS_CPU_ATTENTION_LAYERS_H_
