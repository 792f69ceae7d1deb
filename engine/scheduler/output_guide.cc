#include "engine/scheduler/output_guide.h"

#include <algorithm>
#include <optional>

namespace annulus {
namespace {

bool Reads(GrammarMatcher& matcher, int32_t token) {
  const absl::StatusOr<bool> read = matcher.Advance(token);
  return read.ok() && *read;
}

}  // namespace

bool OutputGuide::Read(std::span<const int32_t> answer, size_t most) {
  const size_t end = std::min(answer.size(), read_ + most);
  for (; read_ < end && !failed_; ++read_) failed_ = !Reads(matcher_, answer[read_]);
  return read_ == answer.size() && !failed_;
}

std::vector<int32_t> OutputGuide::Forced(int most) const {
  std::vector<int32_t> forced;
  GrammarMatcher ahead = matcher_;
  while (static_cast<int>(forced.size()) < most) {
    const absl::StatusOr<std::optional<int32_t>> only = ahead.OnlyToken();
    if (!only.ok() || !only->has_value() || !Reads(ahead, **only)) break;
    forced.push_back(**only);
  }
  return forced;
}

void OutputGuide::Cut(std::vector<int32_t>& draft) const {
  GrammarMatcher ahead = matcher_;
  const auto forbidden =
      std::find_if(draft.begin(), draft.end(), [&](int32_t token) { return !Reads(ahead, token); });
  draft.erase(forbidden, draft.end());
}

}  // namespace annulus
