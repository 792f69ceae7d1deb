#include "server/generation/followed_answer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

size_t CompletionBytes(const Completion& completion) {
  size_t bytes = sizeof(Completion);
  for (const AttentionDetail& detail : completion.attention.details) {
    bytes += sizeof(detail) + detail.map.size() + detail.computed.size();
  }
  for (const ToolCall& call : completion.calls) {
    bytes += sizeof(call) + call.id.size() + call.name.size() + call.arguments.size();
  }
  for (const std::string& reason : completion.broken_calls) bytes += sizeof(reason) + reason.size();
  return bytes + EvidenceBytes(completion.evidence) + completion.evidence_heads.size();
}

absl::Status SlowFollower(absl::string_view request_id) {
  return ReasonError(
      absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_SLOW_READER,
      absl::StrCat("this call reads the answer of request ", QuoteName(request_id),
                   " too slowly, and --max-replay-memory has no room to keep it; read faster, or "
                   "send the request again"));
}

}  // namespace

FollowedAnswer::FollowedAnswer(std::string request_id, size_t own_bytes,
                               std::shared_ptr<MemoryBudget> memory,
                               std::shared_ptr<MemoryBudget> tenant)
    : request_id_(std::move(request_id)),
      bytes_(own_bytes),
      lease_(std::move(memory)),
      tenant_lease_(std::move(tenant)) {}

void FollowedAnswer::Attach(const std::shared_ptr<BoundedSink>& sink) {
  Follower& follower = followers_.emplace_back(Follower{sink});
  if (queued_.has_value()) sink->OnQueued(*queued_);
  if (progress_.has_value()) sink->OnProgress(*progress_);
  FeedOne(follower);
}

void FollowedAnswer::FeedOne(Follower& follower) {
  if (follower.ended) return;
  while (!failed() && follower.next < first_ + deltas_.size() && follower.sink->HasRoom()) {
    follower.sink->OnDelta(deltas_[follower.next++ - first_]);
  }
  const bool all = follower.next == first_ + deltas_.size();
  if (!completion_.has_value() || (!all && !failed())) return;
  follower.ended = true;
  follower.sink->OnDone(*completion_);
}

void FollowedAnswer::Refill(const BoundedSink& sink) {
  for (Follower& follower : followers_) {
    if (follower.sink.get() != &sink) continue;
    const size_t before = follower.next;
    FeedOne(follower);
    if (follower.next > before) has_read_ = true;
  }
  Trim();
}

bool FollowedAnswer::Remove(const BoundedSink& sink) {
  const auto left =
      std::erase_if(followers_, [&](const Follower& one) { return one.sink.get() == &sink; });
  Trim();
  return left > 0;
}

bool FollowedAnswer::IsBehind(const Follower& follower) const {
  return !follower.ended && follower.next < first_ + deltas_.size();
}

bool FollowedAnswer::IsBeingRead() const {
  return std::any_of(followers_.begin(), followers_.end(),
                     [this](const Follower& one) { return IsBehind(one); });
}

void FollowedAnswer::SetQueued(int position) {
  queued_ = position;
  for (const Follower& follower : followers_) follower.sink->OnQueued(position);
}

void FollowedAnswer::SetProgress(const PromptProgress& progress) {
  progress_ = progress;
  for (const Follower& follower : followers_) follower.sink->OnProgress(progress);
}

void FollowedAnswer::Add(Delta delta) {
  bytes_ += DeltaBytes(delta);
  deltas_.push_back(std::move(delta));
}

void FollowedAnswer::End(Completion completion) {
  if (!completion.status.ok()) {  // nobody gets these any more
    for (const Delta& delta : deltas_) bytes_ -= DeltaBytes(delta);
    first_ += deltas_.size();
    deltas_.clear();
  }
  bytes_ += CompletionBytes(completion);
  completion_ = std::move(completion);
}

void FollowedAnswer::Feed() {
  for (Follower& follower : followers_) FeedOne(follower);
  EndSlow();
  Trim();
}

void FollowedAnswer::StopKeeping() {
  kept_ = false;
  EndSlow();
  Trim();
}

void FollowedAnswer::EndSlow() {
  const auto keeps_up = [this](const Follower& one) { return !one.ended && !IsBehind(one); };
  if (kept_ || completion_.has_value()) return;
  if (std::any_of(followers_.begin(), followers_.end(), keeps_up)) EndBehind();
}

void FollowedAnswer::EndBehind() {
  std::erase_if(followers_, [this](const Follower& one) {
    if (!IsBehind(one)) return false;
    Completion slow;
    slow.status = SlowFollower(request_id_);
    slow.finish_reason = FinishReason::kError;
    one.sink->OnDone(std::move(slow));
    return true;
  });
}

// If events are not kept, frees those that every call has taken.
void FollowedAnswer::Trim() {
  if (kept_) return;
  size_t least = first_ + deltas_.size();
  for (const Follower& follower : followers_) {
    if (!follower.ended) least = std::min(least, follower.next);
  }
  for (; first_ < least; ++first_) {
    bytes_ -= DeltaBytes(deltas_.front());
    deltas_.pop_front();
  }
  [[maybe_unused]] const bool smaller = TryHold(std::min(bytes_, lease_.bytes()));
}

bool FollowedAnswer::TryHold(size_t bytes) {
  return lease_.TryResize(bytes) && tenant_lease_.TryResize(bytes);
}

bool FollowedAnswer::HasRoom() const {
  const bool has_read = std::exchange(has_read_, false);
  return has_read || followers_.empty() ||
         std::any_of(followers_.begin(), followers_.end(),
                     [](const Follower& follower) { return follower.sink->HasRoom(); });
}

}  // namespace annulus::server
