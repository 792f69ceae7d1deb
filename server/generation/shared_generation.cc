#include "server/generation/shared_generation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

constexpr size_t kEntryBytes = 1024;  // memory of an entry without events
constexpr size_t kNoteBytes = 2048;   // of its note
constexpr size_t kMostFollowers = 16;
constexpr int64_t kRetryAttachMs = 1000;

absl::Status OtherContent(const RequestKey& key) {
  return ResourceError(
      absl::StatusCode::kAlreadyExists, v1::ERROR_REASON_REQUEST_EXISTS, "request", key.id,
      absl::StrCat("request_id ", QuoteName(key.id),
                   " belongs to another request, which is running or ended recently; send the same "
                   "request unchanged to attach to it, or use a new request_id"));
}

}  // namespace

absl::Status NoSuchRequestError(absl::string_view id) {
  return ResourceError(absl::StatusCode::kNotFound, v1::ERROR_REASON_REQUEST_NOT_FOUND, "request",
                       id,
                       absl::StrCat("no request ", QuoteName(id),
                                    " that can be followed by its name runs here, and "
                                    "none has ended within --attach-window; send it again"));
}

AttachTable::AttachTable(const AttachLimits& limits) : state_(std::make_shared<State>(limits)) {}

AttachTable::~AttachTable() {
  Entries entries;  // destroyed without the lock
  std::lock_guard lock(state_->mutex);
  for (auto& [name, tenant] : state_->tenants) tenant.complete.clear();
  state_->lingering.clear();
  state_->unfollowed.clear();
  entries.swap(state_->entries);
}

void AttachTable::State::Drop(const SharedGeneration& generation) {
  const auto alone = unfollowed.find({generation.key_.tenant, generation.content_});
  if (alone != unfollowed.end() && alone->second == &generation) unfollowed.erase(alone);
  const auto tenant = tenants.find(generation.key_.tenant);
  if (tenant != tenants.end()) {
    auto& complete = tenant->second.complete;
    const auto ended = complete.find(generation.number_);
    if (ended != complete.end() && ended->second == &generation) complete.erase(ended);
  }
  const auto found = entries.find(generation.key_);
  if (found != entries.end() && found->second.get() == &generation) entries.erase(found);
}

// Skips answers that a follower still reads: dropping one would not free its memory, and others
// would be dropped in vain.
bool AttachTable::State::DropOldest(Tenant& tenant) {
  const auto found =
      std::find_if(tenant.complete.begin(), tenant.complete.end(),
                   [](const auto& one) { return !one.second->answer_.IsBeingRead(); });
  if (found == tenant.complete.end()) return false;
  const std::shared_ptr<SharedGeneration> oldest = entries.at(found->second->key_);
  Drop(*oldest);
  oldest->answer_.StopKeeping();
  return true;
}

bool AttachTable::State::EndOldestRead(Tenant& tenant) {
  if (tenant.complete.empty()) return false;
  SharedGeneration& oldest = *tenant.complete.begin()->second;
  const std::shared_ptr<SharedGeneration> held = entries.at(oldest.key_);
  Drop(oldest);
  oldest.answer_.EndBehind();
  oldest.answer_.StopKeeping();
  return true;
}

bool AttachTable::State::CutLargest(const std::string& tenant) {
  SharedGeneration* largest = nullptr;
  for (auto entry = entries.lower_bound({tenant, ""});
       entry != entries.end() && entry->first.tenant == tenant; ++entry) {
    SharedGeneration& one = *entry->second;
    if (!one.answer_.kept() || one.answer_.completion().has_value()) continue;
    if (largest == nullptr || one.answer_.held_bytes() > largest->answer_.held_bytes()) {
      largest = &one;
    }
  }
  if (largest == nullptr) return false;
  largest->answer_.StopKeeping();
  return true;
}

bool AttachTable::State::Keep(SharedGeneration& generation) {
  const std::string& own = generation.key_.tenant;
  while (!generation.answer_.TryHold(generation.answer_.bytes())) {
    const size_t more = generation.answer_.bytes() - generation.answer_.held_bytes();
    const auto most = std::max_element(tenants.begin(), tenants.end(), [&](auto& a, auto& b) {
      const auto takes = [&](auto& one) {
        return one.second.memory->used() + (one.first == own ? more : 0);
      };
      return takes(a) < takes(b);
    });
    if (DropOldest(most->second)) continue;
    if (most->first == own) return false;
    // As a last resort, end answers that are being read: a slow call must not keep the memory of
    // others.
    if (CutLargest(most->first) || EndOldestRead(most->second)) continue;
    if (!DropOldest(tenants[own])) return false;
  }
  return true;
}

void AttachTable::State::Expire(SteadyTime now) {
  for (auto& [name, tenant] : tenants) {
    for (auto next = tenant.complete.begin();
         next != tenant.complete.end() && now - next->second->completed_ >= limits.window;) {
      const SharedGeneration& one = *(next++)->second;
      // One that is being read stays: its memory is in use, and Keep must be able to find it.
      if (one.answer_.IsBeingRead()) continue;
      const std::shared_ptr<SharedGeneration> oldest = entries.at(one.key_);
      Drop(one);
    }
  }
}

void AttachTable::Expire(SteadyTime now) {
  std::vector<std::pair<Engine*, RequestId>> over;
  {
    std::lock_guard lock(state_->mutex);
    state_->Expire(now);
    const std::set<SharedGeneration*> lingering = state_->lingering;
    for (SharedGeneration* const one : lingering) {
      // Nobody could follow a request whose events are not kept.
      if (one->answer_.kept() && now - one->left_ < state_->limits.linger) continue;
      const std::shared_ptr<SharedGeneration> held = state_->entries.at(one->key_);
      if (one->engine_ != nullptr) over.emplace_back(one->engine_, one->id_);
      one->AbandonLocked();
    }
  }
  for (const auto& [engine, id] : over) engine->Cancel(id);
}

size_t AttachTable::bytes() const { return state_->memory->used(); }

size_t AttachTable::most_bytes() const { return state_->memory->most(); }

absl::StatusOr<std::shared_ptr<SharedGeneration>> AttachTable::FollowLocked(
    const RequestKey& key, const std::string* content, const std::shared_ptr<BoundedSink>& sink,
    SteadyTime now, const absl::Status& unplaced) {
  state_->Expire(now);
  const auto found = state_->entries.find(key);
  if (found == state_->entries.end()) return std::shared_ptr<SharedGeneration>();
  const std::shared_ptr<SharedGeneration> held = found->second;
  SharedGeneration& generation = *held;
  if (content != nullptr && generation.content_ != *content) return OtherContent(key);
  // The first one that follows a request which lingers takes its place.
  const FollowedAnswer& answer = generation.answer_;
  const bool lends_place = generation.place_ != nullptr && answer.followers() == 0;
  if (!unplaced.ok() && !answer.completion().has_value() && !lends_place) return unplaced;
  if (!answer.kept() && !answer.failed()) {
    return WithRetry(ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
                                 absl::StrCat("the request ", QuoteName(key.id),
                                              " is running for another call, but its events no "
                                              "longer fit into --max-replay-memory, so this call "
                                              "cannot attach to it; try again when it has ended")),
                     kRetryAttachMs);
  }
  if (answer.followers() >= kMostFollowers) {
    return WithRetry(
        ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
                    absl::StrCat(kMostFollowers,
                                 " calls, the maximum, are already attached to the request ",
                                 QuoteName(key.id), "; try again when one has ended")),
        kRetryAttachMs);
  }
  generation.AttachLocked(sink);
  if (answer.failed()) state_->Drop(generation);  // the next call is to try again
  return held;
}

absl::StatusOr<std::shared_ptr<SharedGeneration>> AttachTable::Follow(
    const RequestKey& key, const std::string& content, const std::shared_ptr<BoundedSink>& sink,
    SteadyTime now, const absl::Status& unplaced) {
  std::lock_guard lock(state_->mutex);
  return FollowLocked(key, &content, sink, now, unplaced);
}

absl::StatusOr<std::shared_ptr<SharedGeneration>> AttachTable::FollowNamed(
    const RequestKey& key, const std::shared_ptr<BoundedSink>& sink, SteadyTime now,
    const absl::Status& unplaced) {
  std::lock_guard lock(state_->mutex);
  auto there = FollowLocked(key, /*content=*/nullptr, sink, now, unplaced);
  if (there.ok() && *there == nullptr) return NoSuchRequestError(key.id);
  return there;
}

std::shared_ptr<SharedGeneration> AttachTable::Join(const std::string& tenant,
                                                    const std::string& content,
                                                    const std::shared_ptr<BoundedSink>& sink,
                                                    SteadyTime now) {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->unfollowed.find({tenant, content});
  if (found == state_->unfollowed.end()) return nullptr;
  const RequestKey key = found->second->key_;
  return FollowLocked(key, &content, sink, now).value_or(nullptr);
}

std::shared_ptr<const AttachNote> AttachTable::NoteOf(const RequestKey& key) const {
  std::lock_guard lock(state_->mutex);
  const auto found = state_->entries.find(key);
  return found == state_->entries.end() ? nullptr : found->second->lasting_.note;
}

absl::StatusOr<AttachTable::Claimed> AttachTable::Claim(const RequestKey& key,
                                                        const std::string& content,
                                                        const std::shared_ptr<BoundedSink>& sink,
                                                        SteadyTime now, const Lasting& lasting) {
  std::lock_guard lock(state_->mutex);
  ANNULUS_ASSIGN_OR_RETURN(std::shared_ptr<SharedGeneration> there,
                           FollowLocked(key, &content, sink, now));
  if (there != nullptr) return Claimed{std::move(there), false};
  auto generation = std::make_shared<SharedGeneration>(state_, key, content, lasting);
  generation->AttachLocked(sink);
  if (!state_->Keep(*generation)) generation->answer_.StopKeeping();
  state_->entries[key] = generation;
  return Claimed{std::move(generation), true};
}

SharedGeneration::SharedGeneration(std::shared_ptr<AttachTable::State> table, const RequestKey& key,
                                   std::string content, Lasting lasting)
    : table_(std::move(table)),
      key_(key),
      content_(std::move(content)),
      lasting_(std::move(lasting)),
      answer_(key.id,
              kEntryBytes + key.tenant.size() + key.id.size() + content_.size() +
                  (lasting_.note == nullptr ? 0 : kNoteBytes),
              table_->memory, table_->tenants[key.tenant].memory) {}

void SharedGeneration::SetOrigin(v1::Origin origin) {
  std::lock_guard lock(table_->mutex);
  origin_ = std::move(origin);
}

v1::Origin SharedGeneration::origin() const {
  std::lock_guard lock(table_->mutex);
  return origin_;
}

bool SharedGeneration::Wanted() const {
  std::lock_guard lock(table_->mutex);
  return !abandoned_;
}

void SharedGeneration::Submitted(Engine& engine, RequestId id) {
  {
    std::lock_guard lock(table_->mutex);
    if (answer_.completion().has_value()) return;
    engine_ = &engine;
    id_ = id;
    if (!abandoned_) return;
  }
  engine.Cancel(id);
}

void SharedGeneration::Refused(absl::Status status) {
  Completion completion;
  completion.status = std::move(status);
  completion.finish_reason = FinishReason::kError;
  OnDone(std::move(completion));
}

void SharedGeneration::AttachLocked(const std::shared_ptr<BoundedSink>& sink) {
  table_->lingering.erase(this);
  const auto alone = table_->unfollowed.find({key_.tenant, content_});
  if (alone != table_->unfollowed.end() && alone->second == this) table_->unfollowed.erase(alone);
  answer_.Attach(sink);
}

void SharedGeneration::Refill(const BoundedSink& sink) {
  std::lock_guard lock(table_->mutex);
  answer_.Refill(sink);
}

void SharedGeneration::AbandonLocked() {
  abandoned_ = true;
  place_.reset();
  table_->lingering.erase(this);
  table_->Drop(*this);
}

void SharedGeneration::Leave(const BoundedSink& sink, std::shared_ptr<QuotaPlace>* place) {
  Engine* engine = nullptr;
  RequestId id = 0;
  {
    std::lock_guard lock(table_->mutex);
    if (!answer_.Remove(sink) || answer_.followers() > 0 || abandoned_) return;
    if (answer_.completion().has_value()) {
      const auto found = table_->entries.find(key_);
      const bool there = found != table_->entries.end() && found->second.get() == this;
      if (there && lasting_.unnamed) table_->unfollowed[{key_.tenant, content_}] = this;
      return;
    }
    if (place != nullptr && lasting_.lingers && answer_.kept() &&
        table_->limits.linger.count() > 0) {
      place_ = std::move(*place);
      left_ = std::chrono::steady_clock::now();
      table_->lingering.insert(this);
      return;
    }
    engine = engine_;
    id = id_;
    AbandonLocked();
  }
  if (engine != nullptr) engine->Cancel(id);
}

std::shared_ptr<QuotaPlace> SharedGeneration::TakePlace() {
  std::lock_guard lock(table_->mutex);
  return std::move(place_);
}

void SharedGeneration::Delivered() {
  std::lock_guard lock(table_->mutex);
  if (!lasting_.unnamed) return;
  table_->Drop(*this);
  answer_.StopKeeping();
}

void SharedGeneration::KeepFailure() {
  std::lock_guard lock(table_->mutex);
  keeps_failure_ = true;
}

void SharedGeneration::OnQueued(int position) {
  std::lock_guard lock(table_->mutex);
  answer_.SetQueued(position);
}

void SharedGeneration::OnProgress(const PromptProgress& progress) {
  std::lock_guard lock(table_->mutex);
  origin_.set_ring_degree(progress.ring_degree);
  answer_.SetProgress(progress);
}

void SharedGeneration::OnDelta(Delta delta) {
  std::lock_guard lock(table_->mutex);
  if (place_ != nullptr) place_->CountTokens(static_cast<int64_t>(delta.token_ids.size()));
  answer_.Add(std::move(delta));
  if (answer_.kept() && !table_->Keep(*this)) answer_.StopKeeping();
  answer_.Feed();
}

// Whether the request's end is kept for later calls; holds its memory.
bool SharedGeneration::KeepsLocked(bool named) {
  if (!named || table_->limits.window.count() == 0) return false;
  const bool wanted = answer_.failed() ? keeps_failure_ : answer_.kept();
  return wanted && table_->Keep(*this);
}

void SharedGeneration::OnDone(Completion completion) {
  std::lock_guard lock(table_->mutex);
  if (answer_.completion().has_value()) return;
  engine_ = nullptr;
  place_.reset();
  table_->lingering.erase(this);
  completed_ = std::chrono::steady_clock::now();
  if (completion.status.ok()) origin_.set_ring_degree(completion.attention.ring_degree);
  answer_.End(std::move(completion));
  const auto found = table_->entries.find(key_);
  const bool named = found != table_->entries.end() && found->second.get() == this;
  if (KeepsLocked(named)) {
    number_ = table_->next_number++;
    table_->tenants[key_.tenant].complete.emplace(number_, this);
  } else {
    table_->Drop(*this);
    answer_.StopKeeping();
  }
  answer_.Feed();
}

bool SharedGeneration::HasRoom() const {
  std::lock_guard lock(table_->mutex);
  return answer_.HasRoom();
}

}  // namespace annulus::server
