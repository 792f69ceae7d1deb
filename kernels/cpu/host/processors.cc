#include "kernels/cpu/host/processors.h"

#include <sched.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace annulus {
namespace {

constexpr int kMostProcessors = 1 << 20;

// A mask of the system for processors below `count`.
class Mask {
 public:
  explicit Mask(int count)
      : words_((CPU_ALLOC_SIZE(count) + sizeof(cpu_set_t) - 1) / sizeof(cpu_set_t)) {}

  size_t bytes() const { return words_.size() * sizeof(cpu_set_t); }
  cpu_set_t* data() { return words_.data(); }
  bool Has(int processor) { return CPU_ISSET_S(processor, bytes(), data()) != 0; }
  void Add(int processor) { CPU_SET_S(processor, bytes(), data()); }

 private:
  std::vector<cpu_set_t> words_;
};

}  // namespace

Processors UsableProcessors() {
  // The mask's size is the kernel's, so it is grown until it fits.
  for (int count = 1024; count <= kMostProcessors; count *= 4) {
    Mask mask(count);
    if (sched_getaffinity(0, mask.bytes(), mask.data()) != 0) continue;
    Processors usable;
    for (int processor = 0; processor < static_cast<int>(mask.bytes()) * 8; ++processor) {
      if (mask.Has(processor)) usable.push_back(processor);
    }
    return usable;
  }
  return {};
}

void BindThread(const Processors& processors) {
  if (processors.empty()) return;
  Mask mask(processors.back() + 1);
  for (const int processor : processors) mask.Add(processor);
  sched_setaffinity(0, mask.bytes(), mask.data());
}

std::optional<Processors> ParseProcessorList(const std::string& text) {
  Processors list;
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  if (stripped.empty()) return list;
  for (const absl::string_view part : absl::StrSplit(stripped, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    int first = 0;
    int last = 0;
    if (ends.size() > 2 || !absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last > kMostProcessors) {
      return std::nullopt;
    }
    for (int processor = first; processor <= last; ++processor) list.push_back(processor);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

}  // namespace annulus
