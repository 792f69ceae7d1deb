#include "engine/scheduler/prompt_lookup.h"

#include <algorithm>
#include <bit>

#include "kernels/base/check.h"

namespace annulus {
namespace {

// More slots than this are not worth their memory: of a longer text the latest parts are found.
constexpr int64_t kMostSlots = int64_t{1} << 21;
constexpr int64_t kLeastSlots = 256;

constexpr double kForgetDrafts = 0.8;  // of earlier drafts, at each further one
constexpr int kLeastRest = 16;
constexpr int kMostRest = 256;

int64_t SlotsFor(int64_t most_tokens) {
  const int64_t tokens = std::clamp(most_tokens, kLeastSlots, kMostSlots);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(tokens)));
}

}  // namespace

int DraftLength(double acceptance, double row_cost, int most) {
  double expected = 1;
  double chance = 1;
  double best = 1;
  int length = 0;
  for (int n = 1; n <= most; ++n) {
    chance *= acceptance;
    expected += chance;
    const double rate = expected / (1 + n * row_cost);
    if (rate <= best) continue;
    best = rate;
    length = n;
  }
  return length;
}

PromptLookup::PromptLookup(int64_t most_tokens)
    : follows_(static_cast<size_t>(SlotsFor(most_tokens)), 0) {}

int64_t PromptLookup::BytesFor(int64_t most_tokens) {
  return SlotsFor(most_tokens) * static_cast<int64_t>(sizeof(int32_t));
}

uint32_t PromptLookup::Slot(const int32_t* match) const {
  uint64_t hash = 0;
  for (int i = 0; i < kMatch; ++i) {
    hash = (hash ^ static_cast<uint32_t>(match[i])) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  }
  return static_cast<uint32_t>(hash & (follows_.size() - 1));
}

void PromptLookup::Read(std::span<const int32_t> tokens, int64_t most) {
  // The last token is left out: what follows it is not known.
  const int64_t end = std::min(std::ssize(tokens), read_ + most);
  for (; read_ < end; ++read_) {
    follows_[Slot(tokens.data() + read_ - kMatch)] = static_cast<int32_t>(read_);
  }
}

int64_t PromptLookup::Find(std::span<const int32_t> tokens) const {
  const int64_t size = std::ssize(tokens);
  const auto last = tokens.last(kMatch);
  const auto matches = [&](int64_t at) {
    return at >= kMatch && at < size &&
           std::equal(last.begin(), last.end(), tokens.begin() + at - kMatch);
  };
  // Prefer the passage quoted so far over others with the same few tokens.
  const int64_t further = source_ + size - drafted_at_;
  if (source_ > 0 && matches(further)) return further;
  const int64_t found = follows_[Slot(last.data())];
  return matches(found) ? found : 0;
}

// Not pure: it counts the chances that it passes over.
int PromptLookup::LengthOf(int most, double row_cost) {
  const int length = DraftLength(acceptance(), row_cost, most);
  if (length > 0 && rest_ == 0) return length;
  if (++passed_over_ < std::max(rest_, kLeastRest)) return 0;
  return std::min(1, most);
}

std::vector<int32_t> PromptLookup::Draft(std::span<const int32_t> tokens, int most,
                                         double row_cost) {
  std::vector<int32_t> draft;
  if (std::ssize(tokens) <= kMatch || most < 1) return draft;
  const int64_t from = Find(tokens);
  if (from == 0) return draft;
  if (weighed_at_ != std::ssize(tokens)) {
    weighed_ = LengthOf(std::min(most, kMostDraft), row_cost);
    weighed_at_ = std::ssize(tokens);
  }
  const int length = std::min(most, weighed_);
  if (length == 0) return draft;
  passed_over_ = 0;
  source_ = from;
  drafted_at_ = std::ssize(tokens);
  // What runs past the end goes round: the text repeats itself.
  const int64_t period = drafted_at_ - from;
  for (int n = 0; n < length; ++n) draft.push_back(tokens[from + n % period]);
  return draft;
}

void PromptLookup::Learn(int drafted, int accepted) {
  ANNULUS_CHECK(0 <= accepted && accepted <= drafted) << accepted << " of " << drafted;
  if (drafted == 0) return;
  right_ = kForgetDrafts * right_ + accepted;
  tried_ = kForgetDrafts * tried_ + accepted + (accepted < drafted ? 1 : 0);
  if (accepted > 0) {
    rest_ = 0;
  } else if (rest_ > 0 || acceptance() < 0.2) {
    rest_ = std::clamp(2 * rest_, kLeastRest, kMostRest);
  }
}

}  // namespace annulus
