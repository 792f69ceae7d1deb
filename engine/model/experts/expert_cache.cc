#include "engine/model/experts/expert_cache.h"

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/device_error.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::array<LinearWeights GatedWeights::*, kExpertMatrices> kProjections = {
    &GatedWeights::gate, &GatedWeights::up, &GatedWeights::down};

// The same numbers, which another owns.
DeviceVector Borrow(const DeviceVector& vector) {
  if (vector.empty()) return {};
  auto* const data = reinterpret_cast<std::byte*>(const_cast<float*>(vector.data()));
  const size_t bytes = static_cast<size_t>(vector.size()) * sizeof(float);
  return {DeviceBuffer(data, bytes, [](std::byte*) {}), vector.size()};
}

}  // namespace

ExpertCache::ExpertCache(Parts parts)
    : parts_(std::move(parts)),
      slots_(parts_.sizes.slots),
      slot_of_(parts_.places.size(), -1),
      scores_(parts_.places.size()),
      begun_(parts_.places.size() / static_cast<size_t>(parts_.experts)) {
  constexpr size_t kRanks = 64;  // each has one walk at a time
  walks_.reserve(kRanks);
}

ExpertCache::~ExpertCache() {
  {
    const std::lock_guard lock(mutex_);
    ANNULUS_CHECK(walks_.empty()) << "a walk outlives its experts";
    stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& reader : readers_) reader.join();
}

// Expert 0 of every layer gets the first slots, then expert 1, and so on.
void ExpertCache::AddMatrices(std::vector<MatrixToLoad>& matrices) {
  const std::lock_guard lock(mutex_);
  const auto experts = static_cast<size_t>(parts_.experts);
  size_t filled = 0;
  for (size_t e = 0; e < experts; ++e) {
    for (size_t index = e; index < parts_.places.size(); index += experts) {
      const ExpertPlace& place = parts_.places[index];
      Slot* const slot = filled < slots_.size() ? &slots_[filled] : nullptr;
      if (slot != nullptr) {
        slot->place = static_cast<int32_t>(index);
        slot_of_[index] = static_cast<int32_t>(filled++);
        Shape(*slot, place);
      }
      for (size_t i = 0; i < kExpertMatrices; ++i) {
        PackedMatrix* const target =
            slot == nullptr ? nullptr : &(slot->weights.*kProjections[i]).weight;
        matrices.push_back({&place.stored[i], place.dtypes[i], target});
      }
    }
  }
}

absl::Status ExpertCache::Start() {
  {
    const std::lock_guard lock(mutex_);
    for (Slot& slot : slots_) {
      BorrowBiases(parts_.places[static_cast<size_t>(slot.place)], slot);
      slot.ready = true;
    }
  }
  std::vector<MatrixReader> readers;
  for (int i = 0; i < parts_.readers; ++i) {
    ANNULUS_RETURN_IF_ERROR(readers.emplace_back(parts_.make_reader()).Reserve(parts_.reading));
  }
  try {
    for (MatrixReader& reader : readers) {
      readers_.emplace_back([this, own = std::move(reader)]() mutable { Read(own); });
    }
  } catch (const std::exception&) {
    // Fewer readers take longer, and that is all.
  }
  if (!readers_.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError("the system gives no thread to read experts with");
}

ExpertCounts ExpertCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void ExpertCache::Abort(const absl::Status& why) {
  ANNULUS_CHECK(!why.ok()) << "an abort needs its reason";
  const std::lock_guard lock(mutex_);
  if (aborted_.ok()) aborted_ = why;
  ready_.notify_all();
}

void ExpertCache::Resume() {
  const std::lock_guard lock(mutex_);
  aborted_ = absl::OkStatus();
}

void ExpertCache::CountStep(bool waited) {
  const std::lock_guard lock(mutex_);
  ++counts_.steps;
  if (waited) ++counts_.waited_steps;
}

// ---- walks

ExpertCache::Walk::Walk(ExpertCache& cache, int layer, std::span<const int32_t> ends)
    : cache_(cache), first_(cache.parts_.first[static_cast<size_t>(layer)]), ends_(ends) {
  ANNULUS_CHECK(first_ >= 0) << "layer " << layer << " has no experts";
  ANNULUS_CHECK(std::ssize(ends) == cache.parts_.experts + 1) << ends.size() << " ends";
  cache_.Begin(*this);
}

ExpertCache::Walk::~Walk() { cache_.End(*this); }

absl::StatusOr<const GatedWeights*> ExpertCache::Walk::Hold(int32_t expert) {
  return cache_.Hold(*this, expert);
}

void ExpertCache::Begin(Walk& walk) {
  const std::lock_guard lock(mutex_);
  walks_.push_back(&walk);
  int64_t missing = 0;
  for (int32_t e = 0; e < parts_.experts; ++e) {
    if (!walk.Needs(e)) continue;
    const bool hit = IsReady(walk.first_ + e);
    ++(hit ? counts_.hits : counts_.misses);
    if (!hit) ++missing;
  }
  CountChoices(walk);
  if (missing > 0) work_.notify_all();
}

void ExpertCache::CountChoices(const Walk& walk) {
  const int32_t all = walk.ends_.back();
  if (all == 0) return;
  float* const scores = scores_.data() + walk.first_;
  for (size_t e = 0; e + 1 < walk.ends_.size(); ++e) {
    scores[e] += static_cast<float>(walk.ends_[e + 1] - walk.ends_[e]) / static_cast<float>(all);
  }
  if (++begun_[static_cast<size_t>(walk.first_ / parts_.experts)] % kHalfLife != 0) return;
  for (int32_t e = 0; e < parts_.experts; ++e) scores[e] /= 2;
}

void ExpertCache::End(Walk& walk) {
  const std::lock_guard lock(mutex_);
  Release(walk);
  walks_.erase(std::find(walks_.begin(), walks_.end(), &walk));
  if (no_slot_) work_.notify_all();
}

void ExpertCache::Release(Walk& walk) {
  if (walk.held_ < 0) return;
  --slots_[static_cast<size_t>(walk.held_)].pins;
  walk.held_ = -1;
  if (no_slot_) work_.notify_all();
}

absl::StatusOr<const GatedWeights*> ExpertCache::Hold(Walk& walk, int32_t expert) {
  std::unique_lock lock(mutex_);
  ANNULUS_CHECK(walk.Needs(expert)) << "expert " << expert << " is not needed now";
  Release(walk);
  walk.next_ = expert;
  const int32_t place = walk.first_ + expert;
  if (!IsReady(place)) ANNULUS_RETURN_IF_ERROR(Await(walk, place, lock));
  walk.held_ = slot_of_[static_cast<size_t>(place)];
  walk.next_ = expert + 1;
  Slot& slot = slots_[static_cast<size_t>(walk.held_)];
  ++slot.pins;
  slot.used = ++uses_;
  return &slot.weights;
}

absl::Status ExpertCache::Await(Walk& walk, int32_t place, std::unique_lock<std::mutex>& lock) {
  const SteadyClock::time_point begun = SteadyClock::now();
  walk.awaited_ = place;
  walk.waited_ = true;
  const auto failure = [&] { return walk.failed_.ok() ? aborted_ : walk.failed_; };
  absl::Status status = failure();
  while (status.ok() && !IsReady(place)) {
    work_.notify_one();
    const int64_t seen = finished_;
    const bool moved = ready_.wait_for(lock, parts_.longest_wait,
                                       [&] { return finished_ != seen || !aborted_.ok(); });
    status = failure();
    if (moved || !status.ok()) continue;
    status = absl::DeadlineExceededError(absl::StrCat(
        "no expert could be read from the model's files for ", parts_.longest_wait.count(),
        " ms (exchange-timeout); see whether their disk answers"));
  }
  walk.awaited_ = -1;
  counts_.wait_seconds += std::chrono::duration<double>(SteadyClock::now() - begun).count();
  return status;
}

// ---- readers

void ExpertCache::Read(MatrixReader& reader) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const std::optional<Load> load = NextLoad();
    if (!load.has_value()) {
      work_.wait(lock);
      continue;
    }
    Occupy(*load);
    lock.unlock();
    const absl::Status status = Guarded(
        [&] { return Fill(*load, reader); },
        [] { return absl::ResourceExhaustedError("there is no memory to read an expert"); });
    lock.lock();
    Finish(*load, status);
  }
}

// What somebody waits for goes first.
std::optional<ExpertCache::Load> ExpertCache::NextLoad() {
  no_slot_ = false;
  for (const bool blocked : {true, false}) {
    for (const Walk* walk : walks_) {
      if (!walk->failed_.ok()) continue;
      int32_t place = blocked ? walk->awaited_ : NextMissing(*walk);
      if (blocked && place >= 0 && slot_of_[static_cast<size_t>(place)] >= 0) place = -1;
      if (place < 0) continue;
      const int32_t slot = FindSlot(blocked);
      if (slot >= 0) return Load{place, slot};
      no_slot_ = true;
    }
  }
  return std::nullopt;
}

// The first that the walk needs and nobody reads; -1: there is none.
int32_t ExpertCache::NextMissing(const Walk& walk) const {
  for (int32_t e = walk.next_; e < parts_.experts; ++e) {
    if (walk.Needs(e) && slot_of_[static_cast<size_t>(walk.first_ + e)] < 0) return walk.first_ + e;
  }
  return -1;
}

// A slot for another expert; -1: there is none now. `blocked`: even one that a walk still needs.
int32_t ExpertCache::FindSlot(bool blocked) const {
  const Slot* best = nullptr;
  bool best_needed = false;
  for (const Slot& slot : slots_) {
    if (slot.place < 0) return static_cast<int32_t>(&slot - slots_.data());
    if (!slot.ready || slot.pins > 0 || IsAwaited(slot.place)) continue;
    const bool needed = IsNeeded(slot.place);
    if (needed && !blocked) continue;
    const bool better =
        best == nullptr || (needed == best_needed ? GoesBefore(slot, *best) : best_needed);
    if (!better) continue;
    best = &slot;
    best_needed = needed;
  }
  return best == nullptr ? -1 : static_cast<int32_t>(best - slots_.data());
}

bool ExpertCache::GoesBefore(const Slot& a, const Slot& b) const {
  const float score_a = scores_[static_cast<size_t>(a.place)];
  const float score_b = scores_[static_cast<size_t>(b.place)];
  return score_a != score_b ? score_a < score_b : a.used < b.used;
}

bool ExpertCache::IsNeeded(int32_t place) const {
  return std::any_of(walks_.begin(), walks_.end(), [&](const Walk* walk) {
    const int32_t expert = place - walk->first_;
    return expert >= 0 && expert < parts_.experts && walk->Needs(expert);
  });
}

bool ExpertCache::IsAwaited(int32_t place) const {
  return std::any_of(walks_.begin(), walks_.end(),
                     [&](const Walk* walk) { return walk->awaited_ == place; });
}

void ExpertCache::Occupy(const Load& load) {
  Slot& slot = slots_[static_cast<size_t>(load.slot)];
  if (slot.place >= 0) slot_of_[static_cast<size_t>(slot.place)] = -1;
  slot.place = load.place;
  slot.ready = false;
  slot_of_[static_cast<size_t>(load.place)] = load.slot;
}

void ExpertCache::Finish(const Load& load, const absl::Status& status) {
  Slot& slot = slots_[static_cast<size_t>(load.slot)];
  ++finished_;
  if (status.ok()) {
    slot.ready = true;
    for (const auto projection : kProjections) {
      counts_.read_bytes += static_cast<int64_t>((slot.weights.*projection).weight.storage.size());
    }
  } else {
    slot.place = -1;
    slot_of_[static_cast<size_t>(load.place)] = -1;
    for (Walk* walk : walks_) {
      const int32_t expert = load.place - walk->first_;
      if (expert < 0 || expert >= parts_.experts || !walk->Needs(expert)) continue;
      walk->failed_ = WithPrefix("an expert could not be read: ", status);
    }
  }
  ready_.notify_all();
  if (no_slot_) work_.notify_all();
}

// Nobody else looks at a slot that is not ready.
absl::Status ExpertCache::Fill(const Load& load, MatrixReader& reader) {
  Slot& slot = slots_[static_cast<size_t>(load.slot)];
  const ExpertPlace& place = parts_.places[static_cast<size_t>(load.place)];
  Shape(slot, place);
  BorrowBiases(place, slot);
  for (size_t i = 0; i < kExpertMatrices; ++i) {
    const MatrixToLoad matrix = {&place.stored[i], place.dtypes[i],
                                 &(slot.weights.*kProjections[i]).weight};
    ANNULUS_RETURN_IF_ERROR(LoadMatrix(matrix, reader, *parts_.ops));
  }
  return absl::OkStatus();
}

// Gives the slot matrices of the expert's shapes, side by side.
void ExpertCache::Shape(Slot& slot, const ExpertPlace& place) {
  const auto index = static_cast<size_t>(&slot - slots_.data());
  std::byte* next = parts_.storage.data() + index * parts_.sizes.slot_bytes;
  for (size_t i = 0; i < kExpertMatrices; ++i) {
    const StoredMatrix& stored = place.stored[i];
    const size_t bytes =
        parts_.ops->matrix_bytes(stored.rows, stored.cols, place.dtypes[i]).value();
    (slot.weights.*kProjections[i]).weight = {
        stored.rows, stored.cols, place.dtypes[i],
        DeviceBuffer(
            next, bytes, [](std::byte*) {}, parts_.storage.device())};
    next += AlignedMatrix(bytes);
  }
}

void ExpertCache::BorrowBiases(const ExpertPlace& place, Slot& slot) {
  for (const auto projection : kProjections) {
    (slot.weights.*projection).bias = Borrow((place.weights->*projection).bias);
  }
}

}  // namespace annulus
