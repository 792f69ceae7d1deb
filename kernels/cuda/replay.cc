#include "kernels/cuda/replay.h"

#include "kernels/base/status_macros.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {

void Replay::Close::operator()(GraphHandle graph) const { CloseGraph(graph); }

void Replay::Begin() {
  log_.Clear();
  next_ = 0;
  singly_ = false;
}

absl::Status Replay::HandOver(StreamHandle stream) {
  const std::span<const HeldLaunch> held = log_.held();
  if (held.empty()) return absl::OkStatus();
  const size_t index = next_++;
  if (pieces_.size() <= index) pieces_.resize(index + 1);
  LaunchLog* const log = stream->held;
  stream->held = nullptr;
  const bool singly = held.size() < kFewestInGraph;
  singly_ = singly_ || singly;
  absl::Status status = UseDevice(ordinal_);
  if (status.ok()) {
    status = singly ? RunSingly(stream, held) : Run(stream, pieces_[index], held);
  }
  if (status.ok()) Count(singly ? &GraphCounts::single : &GraphCounts::replayed, held.size());
  stream->held = log;
  log_.Clear();
  return status;
}

void Replay::End() {
  if (next_ == 0) return;
  Count(next_ == 1 && !singly_ ? &GraphCounts::whole : &GraphCounts::in_pieces);
}

absl::Status Replay::RunSingly(StreamHandle stream, std::span<const HeldLaunch> held) {
  for (const HeldLaunch& launch : held) {
    ANNULUS_RETURN_IF_ERROR(EnqueueHeld(stream, launch));
  }
  return absl::OkStatus();
}

// A graph that could not be told everything is not kept.
absl::Status Replay::Run(StreamHandle stream, Piece& piece, std::span<const HeldLaunch> held) {
  absl::Status status = Adjust(piece, held);
  if (status.ok()) status = RunGraph(stream, piece.graph.get());
  if (!status.ok()) piece.graph.reset();
  return status;
}

absl::Status Replay::Adjust(Piece& piece, std::span<const HeldLaunch> held) {
  bool fits = piece.graph != nullptr && piece.launches.size() == held.size();
  for (size_t i = 0; fits && i < held.size(); ++i) {
    fits = KindOf(piece.launches[i]) == KindOf(held[i]);
  }
  if (!fits) {
    piece.graph.reset();
    piece.launches.assign(held.begin(), held.end());
    ANNULUS_ASSIGN_OR_RETURN(GraphHandle graph, BuildGraph(ordinal_, held));
    piece.graph.reset(graph);
    Count(&GraphCounts::built);
    return absl::OkStatus();
  }
  for (size_t i = 0; i < held.size(); ++i) {
    if (piece.launches[i] == held[i]) continue;
    ANNULUS_RETURN_IF_ERROR(SetInGraph(piece.graph.get(), i, held[i]));
    piece.launches[i] = held[i];
    Count(&GraphCounts::updated);
  }
  return absl::OkStatus();
}

void Replay::Leave() {
  for (Piece& piece : pieces_) static_cast<void>(piece.graph.release());
}

void Replay::CountCut(GraphCut cut) {
  switch (cut) {
    case GraphCut::kWait:
      return Count(&GraphCounts::cut_by_wait);
    case GraphCut::kEvent:
      return Count(&GraphCounts::cut_by_event);
    case GraphCut::kCopy:
      return Count(&GraphCounts::cut_by_copy);
    case GraphCut::kMemory:
      return Count(&GraphCounts::cut_by_memory);
    case GraphCut::kLibrary:
      return Count(&GraphCounts::cut_by_library);
  }
}

void Replay::Count(int64_t GraphCounts::*which, size_t number) {
  std::lock_guard lock(mutex_);
  counts_.*which += static_cast<int64_t>(number);
}

GraphCounts Replay::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace annulus::cuda
