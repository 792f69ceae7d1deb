#include "engine/sampling/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace annulus {
namespace {

std::vector<uint32_t> Borders(const std::string& stop) {
  std::vector<uint32_t> border(stop.size(), 0);
  uint32_t length = 0;
  for (size_t i = 1; i < stop.size(); ++i) {
    while (length > 0 && stop[i] != stop[length]) length = border[length - 1];
    if (stop[i] == stop[length]) ++length;
    border[i] = length;
  }
  return border;
}

// The first `size` bytes of `first` followed by `second`.
std::string Prefix(absl::string_view first, absl::string_view second, size_t size) {
  std::string text(first.substr(0, size));
  if (size > first.size()) text.append(second.data(), size - first.size());
  return text;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  patterns_.reserve(stops.size());
  for (std::string& stop : stops) {
    ANNULUS_CHECK(!stop.empty()) << "empty stop string";
    std::vector<uint32_t> border = Borders(stop);
    patterns_.push_back({std::move(stop), std::move(border)});
  }
}

void StopMatcher::Pattern::Advance(char byte) {
  while (matched > 0 && stop[matched] != byte) matched = border[matched - 1];
  if (stop[matched] == byte) ++matched;
}

const StopMatcher::Pattern* StopMatcher::LongestHeld() const {
  const auto longest =
      std::max_element(patterns_.begin(), patterns_.end(),
                       [](const Pattern& a, const Pattern& b) { return a.matched < b.matched; });
  return longest == patterns_.end() ? nullptr : &*longest;
}

size_t StopMatcher::held() const {
  const Pattern* pattern = LongestHeld();
  return pattern == nullptr ? 0 : pattern->matched;
}

StopMatcher::Result StopMatcher::Append(absl::string_view text) {
  ANNULUS_CHECK(!ended_) << "text after the end";
  // The held text is the beginning of this stop, which does not change while patterns advance.
  const Pattern* before = LongestHeld();
  const absl::string_view held_before =
      before == nullptr ? absl::string_view()
                        : absl::string_view(before->stop).substr(0, before->matched);
  for (size_t i = 0; i < text.size(); ++i) {
    const Pattern* complete = nullptr;
    for (Pattern& pattern : patterns_) {
      pattern.Advance(text[i]);
      const bool ends_here = pattern.matched == pattern.stop.size();
      if (ends_here && (complete == nullptr || complete->matched < pattern.matched)) {
        complete = &pattern;
      }
    }
    if (complete != nullptr) {
      ended_ = true;
      const size_t shown = held_before.size() + i + 1 - complete->stop.size();
      return {Prefix(held_before, text, shown), complete->stop};
    }
  }
  return {Prefix(held_before, text, held_before.size() + text.size() - held()), std::nullopt};
}

std::string StopMatcher::Release() {
  ANNULUS_CHECK(!ended_) << "released after the end";
  const Pattern* pattern = LongestHeld();
  std::string held = pattern == nullptr ? "" : pattern->stop.substr(0, pattern->matched);
  for (Pattern& each : patterns_) each.matched = 0;
  return held;
}

std::string StopMatcher::Finish() {
  std::string held = Release();
  ended_ = true;
  return held;
}

}  // namespace annulus
