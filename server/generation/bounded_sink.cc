#include "server/generation/bounded_sink.h"

#include <utility>

namespace annulus::server {

namespace {

size_t LogprobBytes(const TokenLogprob& logprob) {
  size_t bytes =
      sizeof(TokenLogprob) + logprob.alternatives.size() * sizeof(logprob.alternatives[0]);
  for (const auto* list : {&logprob.texts, &logprob.partial}) {
    for (const std::string& text : *list) bytes += sizeof(text) + text.size();
  }
  return bytes;
}

}  // namespace

size_t EvidenceBytes(const std::vector<SentenceEvidence>& sentences) {
  size_t bytes = 0;
  for (const SentenceEvidence& sentence : sentences) {
    bytes += sizeof(sentence);
    for (const Passage& passage : sentence.passages) {
      bytes += sizeof(passage) + passage.place.document.size() + passage.place.label.size() +
               passage.place.text.size();
    }
  }
  return bytes;
}

size_t DeltaBytes(const Delta& delta) {
  size_t bytes = sizeof(Delta) + delta.text.size() + delta.token_ids.size() * sizeof(int32_t);
  for (const auto* list : {&delta.logprobs, &delta.prompt_logprobs}) {
    for (const TokenLogprob& logprob : *list) bytes += LogprobBytes(logprob);
  }
  bytes += delta.reasoning.size();
  for (const ToolCallDelta& call : delta.calls) {
    bytes += sizeof(call) + call.id.size() + call.name.size() + call.arguments.size();
  }
  return bytes + EvidenceBytes(delta.evidence);
}

void BoundedSink::OnQueued(int position) {
  std::lock_guard lock(mutex_);
  if (stage_ > Stage::kQueued) return;
  queued_ = QueuedEvent{position};
  PostLocked();
}

void BoundedSink::OnProgress(const PromptProgress& progress) {
  std::lock_guard lock(mutex_);
  if (stage_ > Stage::kPrompt) return;
  stage_ = Stage::kPrompt;
  progress_ = progress;
  PostLocked();
}

void BoundedSink::OnDelta(Delta delta) {
  std::lock_guard lock(mutex_);
  if (stage_ == Stage::kDone || reader_ == nullptr) return;
  stage_ = Stage::kAnswer;
  delta_bytes_ += DeltaBytes(delta);
  deltas_.push_back(std::move(delta));
  PostLocked();
}

void BoundedSink::OnDone(Completion completion) {
  std::lock_guard lock(mutex_);
  if (stage_ == Stage::kDone) return;
  stage_ = Stage::kDone;
  if (!completion.status.ok()) DropLocked();  // a failed call sends only its status
  completion_ = std::move(completion);
  PostLocked();
}

bool BoundedSink::HasRoom() const {
  std::lock_guard lock(mutex_);
  return delta_bytes_ < limits_.max_bytes && deltas_.size() < limits_.max_deltas;
}

std::optional<SinkEvent> BoundedSink::Pop() {
  std::lock_guard lock(mutex_);
  if (queued_) return std::exchange(queued_, std::nullopt);
  if (progress_) return std::exchange(progress_, std::nullopt);
  if (!deltas_.empty()) {
    Delta delta = std::move(deltas_.front());
    deltas_.pop_front();
    delta_bytes_ -= DeltaBytes(delta);
    return delta;
  }
  return std::exchange(completion_, std::nullopt);
}

void BoundedSink::Detach() {
  std::lock_guard reader_lock(reader_mutex_);
  std::lock_guard lock(mutex_);
  reader_ = nullptr;
  DropLocked();
}

void BoundedSink::ComeAgain() {
  std::lock_guard lock(mutex_);
  PostLocked();
}

void BoundedSink::Deliver() {
  std::lock_guard reader_lock(reader_mutex_);
  {
    std::lock_guard lock(mutex_);
    posted_ = false;
  }
  if (reader_ != nullptr) reader_->OnReady();
}

void BoundedSink::DropLocked() {
  queued_.reset();
  progress_.reset();
  deltas_.clear();
  delta_bytes_ = 0;
}

void BoundedSink::PostLocked() {
  if (posted_ || reader_ == nullptr) return;
  posted_ = true;
  delivery_->Post(shared_from_this());
}

}  // namespace annulus::server
