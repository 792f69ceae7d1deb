#ifndef ANNULUS_TESTS_SUPPORT_PAIRWISE_H_
#define ANNULUS_TESTS_SUPPORT_PAIRWISE_H_

#include <cstddef>
#include <random>
#include <vector>

namespace annulus::testing {

// Cases over axes of `sizes` values such that every pair of values of every two axes occurs in some
// case: case[axis] is an index into that axis. Greedy (AETG; Cohen et al. 1997): each case starts
// from a pair that is still missing and takes, axis by axis, the value that adds most pairs.
class PairwiseCases {
 public:
  PairwiseCases(std::vector<int> sizes, std::mt19937& random)
      : sizes_(std::move(sizes)), random_(random) {
    for (const int size : sizes_) {
      offsets_.push_back(total_);
      total_ += size;
    }
    missing_.assign(static_cast<size_t>(total_) * total_, false);
    for (size_t a = 0; a < sizes_.size(); ++a) {
      for (size_t b = 0; b < sizes_.size(); ++b) {
        for (int x = 0; a != b && x < sizes_[a]; ++x) {
          for (int y = 0; y < sizes_[b]; ++y) Missing(a, x, b, y) = true;
        }
      }
    }
  }

  std::vector<std::vector<int>> Make() {
    std::vector<std::vector<int>> cases;
    for (size_t a = 0; a < sizes_.size(); ++a) {
      for (size_t b = a + 1; b < sizes_.size(); ++b) {
        for (int x = 0; x < sizes_[a]; ++x) {
          for (int y = 0; y < sizes_[b]; ++y) {
            if (Missing(a, x, b, y)) cases.push_back(CaseWith(a, x, b, y));
          }
        }
      }
    }
    return cases;
  }

 private:
  std::vector<bool>::reference Missing(size_t a, int x, size_t b, int y) {
    return missing_[static_cast<size_t>(offsets_[a] + x) * total_ + offsets_[b] + y];
  }

  std::vector<int> CaseWith(size_t a, int x, size_t b, int y) {
    std::vector<int> chosen(sizes_.size(), -1);
    chosen[a] = x;
    chosen[b] = y;
    for (size_t axis = 0; axis < sizes_.size(); ++axis) {
      if (chosen[axis] < 0) chosen[axis] = BestValue(axis, chosen);
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
      for (size_t j = 0; j < chosen.size(); ++j) Missing(i, chosen[i], j, chosen[j]) = false;
    }
    return chosen;
  }

  int BestValue(size_t axis, const std::vector<int>& chosen) {
    const int start = std::uniform_int_distribution<int>(0, sizes_[axis] - 1)(random_);
    int best = start;
    int most = -1;
    for (int n = 0; n < sizes_[axis]; ++n) {
      const int value = (start + n) % sizes_[axis];
      int added = 0;
      for (size_t other = 0; other < chosen.size(); ++other) {
        if (chosen[other] >= 0) added += Missing(axis, value, other, chosen[other]);
      }
      if (added > most) {
        most = added;
        best = value;
      }
    }
    return best;
  }

  const std::vector<int> sizes_;
  std::mt19937& random_;
  std::vector<int> offsets_;
  int total_ = 0;
  std::vector<bool> missing_;  // [value of any axis][value of any axis]
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_PAIRWISE_H_
