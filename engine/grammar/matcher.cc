#include "engine/grammar/matcher.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

GrammarCache::GrammarCache(std::shared_ptr<const Machine> machine,
                           std::shared_ptr<const TokenTrie> tokens, std::vector<int32_t> end_ids,
                           size_t max_bytes)
    : machine_(std::move(machine)),
      tokens_(std::move(tokens)),
      end_ids_(std::move(end_ids)),
      max_bytes_(max_bytes),
      trim_above_(max_bytes),
      states_(machine_.get(), std::max(tokens_->plain().depth, tokens_->others().depth)),
      path_(size_t{1} + std::max(tokens_->plain().depth, tokens_->others().depth)) {
  for (const int32_t id : end_ids_) ANNULUS_CHECK(id >= 0 && id < tokens_->vocabulary());
}

size_t GrammarCache::bytes() const {
  return states_.bytes() + rows_.size() * (sizeof(Row) + tokens_->words() * sizeof(uint32_t));
}

uint32_t GrammarCache::NewSlot(StateId state) {
  if (free_slots_.empty()) {
    slots_.push_back(state);
    return static_cast<uint32_t>(slots_.size() - 1);
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = state;
  return slot;
}

void GrammarCache::FreeSlot(uint32_t slot) {
  slots_[slot] = kDeadState;
  free_slots_.push_back(slot);
}

absl::Status GrammarCache::TooDeep() const {
  return absl::ResourceExhaustedError(
      absl::StrCat("the state of the output constraint takes more than ",
                   max_bytes_ / kStatesOfMatcher, " bytes: the answer is nested too deeply"));
}

template <typename Find>
std::invoke_result_t<Find, StateId> GrammarCache::Call(uint32_t slot, int64_t& steps,
                                                       const Find& find) {
  states_.Begin(steps);
  ANNULUS_RETURN_IF_ERROR(states_.status());
  if (At(slot) == kDeadState) return TooDeep();
  shown_ = kDeadState;
  auto found = find(At(slot));
  Trim();
  return found;
}

void GrammarCache::Trim() {
  const size_t matchers = slots_.size() - free_slots_.size();
  if (bytes() <= std::max(trim_above_, matchers * max_bytes_)) return;
  // Behind the matchers' states: those whose masks are kept.
  std::vector<StateId> kept = slots_;
  kept.push_back(states_.Representative(states_.start()));
  kept.push_back(shown_);
  std::vector<Row> rows;
  std::vector<size_t> of;  // in `kept`
  for (size_t i = slots_.size(); i < kept.size(); ++i) {
    int32_t& mask = states_.mask_of(kept[i]);
    if (mask == LazyStates::kNoMask) continue;
    rows.push_back(std::move(rows_[static_cast<size_t>(mask)]));
    of.push_back(i);
    mask = LazyStates::kNoMask;
  }
  states_.KeepOnly(kept);
  rows_ = std::move(rows);
  for (size_t row = 0; row < of.size(); ++row) {
    states_.mask_of(kept[of[row]]) = static_cast<int32_t>(row);
  }
  shown_ = kept.back();
  std::copy(kept.begin(), kept.begin() + std::ssize(slots_), slots_.begin());
  trim_above_ = 2 * bytes();
}

absl::StatusOr<bool> GrammarCache::Read(uint32_t slot, absl::string_view bytes) {
  StateId state = At(slot);
  for (const char byte : bytes) {
    state = states_.Next(state, static_cast<uint8_t>(byte));
    if (state == kDeadState) break;
  }
  ANNULUS_RETURN_IF_ERROR(states_.status());
  if (state == kDeadState) return false;
  const bool fits = states_.IsWithin(state, max_bytes_ / kStatesOfMatcher);
  At(slot) = fits ? state : kDeadState;
  if (!fits) return TooDeep();
  return true;
}

template <typename Take>
void GrammarCache::Walk(const TokenTrie::Tree& tree, bool plain, StateId state, const Take& take) {
  path_[0] = state;
  const size_t count = tree.nodes.size();
  for (size_t i = 0; i < count;) {
    const TokenTrie::Tree::Node& node = tree.nodes[i];
    const StateId next = states_.Next(path_[node.depth - 1u], node.byte);
    if (next == kDeadState) {
      i = node.after;
      continue;
    }
    size_t end = node.first + node.ends;
    // All below is allowed if it goes on with plain characters where these may repeat, or with
    // bytes that lead nowhere else. A state that a byte led back to may well be one of the latter.
    const bool all =
        (plain && states_.plain_room(next) >= TokenTrie::kMaxPlainCharacters) ||
        (next == path_[node.depth - 1u] && (node.below & ~states_.LoopGroups(next)) == 0);
    if (all) end = node.after < count ? tree.nodes[node.after].first : tree.ids.size();
    if (!take(std::span(tree.ids).subspan(node.first, end - node.first))) return;
    path_[node.depth] = next;
    i = all ? node.after : i + 1;
  }
}

absl::Status GrammarCache::Fill(StateId state, Row* row) {
  row->words.assign(tokens_->words(), 0);
  const uint32_t room = states_.plain_room(state);
  if (room > 0) {
    const std::span<const uint32_t> all = tokens_->PlainRow(room);
    std::copy(all.begin(), all.end(), row->words.begin());
  }
  const auto allow = [words = row->words.data()](std::span<const int32_t> ids) {
    for (const int32_t id : ids) words[id / 32] |= 1u << (id % 32);
    return true;
  };
  if (room < TokenTrie::kMaxPlainCharacters && states_.takes_plain_otherwise(state)) {
    Walk(tokens_->plain(), /*plain=*/true, state, allow);
  }
  Walk(tokens_->others(), /*plain=*/false, state, allow);
  ANNULUS_RETURN_IF_ERROR(states_.status());
  if (states_.accepts(state)) {
    for (const int32_t id : end_ids_) row->words[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  int allowed = 0;
  for (size_t i = 0; i < row->words.size() && allowed <= 1; ++i) {
    const uint32_t word = row->words[i];
    if (word == 0) continue;
    allowed += std::popcount(word);
    row->only = static_cast<int32_t>(i * 32) + std::countr_zero(word);
  }
  if (allowed != 1) row->only.reset();
  if (allowed > 0) return absl::OkStatus();
  return absl::InternalError("a state of the output constraint allows no token");
}

absl::StatusOr<std::optional<int32_t>> GrammarCache::OnlyAt(StateId state) {
  if (states_.accepts(state)) return std::nullopt;
  std::optional<int32_t> only;
  bool several = false;
  const auto count = [&](std::span<const int32_t> ids) {
    several = ids.size() > 1 || (only.has_value() && !ids.empty());
    if (!several && !ids.empty()) only = ids.front();
    return !several;
  };
  if (states_.plain_room(state) > 0 || states_.takes_plain_otherwise(state)) {
    Walk(tokens_->plain(), /*plain=*/true, state, count);
  }
  if (!several) Walk(tokens_->others(), /*plain=*/false, state, count);
  ANNULUS_RETURN_IF_ERROR(states_.status());
  return several ? std::nullopt : only;
}

absl::StatusOr<TokenMask> GrammarCache::MaskAt(StateId state) {
  const StateId same = states_.Representative(state);
  if (states_.mask_of(same) == LazyStates::kNoMask) {
    Row row;
    ANNULUS_RETURN_IF_ERROR(Fill(same, &row));
    states_.mask_of(same) = static_cast<int32_t>(rows_.size());
    rows_.push_back(std::move(row));
  }
  shown_ = same;
  const Row& row = rows_[static_cast<size_t>(states_.mask_of(same))];
  return TokenMask{row.words, row.only};
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<GrammarCache> cache)
    : cache_(std::move(cache)),
      steps_(std::make_shared<int64_t>(LazyStates::kMaxSteps)),
      slot_(cache_->NewSlot(cache_->states_.start())) {}

GrammarMatcher::GrammarMatcher(const GrammarMatcher& other)
    : cache_(other.cache_), steps_(other.steps_), slot_(cache_->NewSlot(cache_->At(other.slot_))) {}

GrammarMatcher& GrammarMatcher::operator=(const GrammarMatcher& other) {
  GrammarMatcher copy(other);
  std::swap(cache_, copy.cache_);
  std::swap(steps_, copy.steps_);
  std::swap(slot_, copy.slot_);
  return *this;
}

GrammarMatcher::~GrammarMatcher() { cache_->FreeSlot(slot_); }

absl::StatusOr<bool> GrammarMatcher::Advance(int32_t token) {
  const absl::string_view bytes = cache_->tokens_->TokenBytes(token);
  if (bytes.empty()) return false;
  return AdvanceBytes(bytes);
}

absl::StatusOr<bool> GrammarMatcher::AdvanceBytes(absl::string_view bytes) {
  return cache_->Call(slot_, *steps_, [&](StateId) { return cache_->Read(slot_, bytes); });
}

bool GrammarMatcher::thinks() const { return cache_->states_.thinks(cache_->At(slot_)); }

const Machine& GrammarMatcher::machine() const { return *cache_->machine_; }

bool GrammarMatcher::may_end() const { return cache_->states_.accepts(cache_->At(slot_)); }

absl::StatusOr<TokenMask> GrammarMatcher::Mask() const {
  return cache_->Call(slot_, *steps_, [&](StateId state) { return cache_->MaskAt(state); });
}

absl::StatusOr<std::optional<int32_t>> GrammarMatcher::OnlyToken() const {
  return cache_->Call(slot_, *steps_, [&](StateId state) { return cache_->OnlyAt(state); });
}

}  // namespace annulus
