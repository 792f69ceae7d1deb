#ifndef ANNULUS_ENGINE_EXCHANGE_RING_PROBE_H_
#define ANNULUS_ENGINE_EXCHANGE_RING_PROBE_H_

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ring/open_ring.h"
#include "engine/ring/ring_attention.h"
#include "engine/scheduler/cost_model.h"
#include "kernels/registry.h"

namespace annulus {

struct RingProbeOptions {
  int ranks = 1;
  int threads = 1;  // all ranks together; each has at least one
  AttentionGeometry attention;
  int32_t tokens = 1;  // positions that its pages hold
  int32_t rows = 1;    // most rows of a layer, all ranks together
  RingTransport transport = RingTransport::kAuto;
};

// A ring of this process with scratch pages, to time attention and exchange alone, run as in a
// step. Memory comes from the backend and is freed with the probe. Not thread-safe.
class RingProbe {
 public:
  // RESOURCE_EXHAUSTED if there is not enough memory; errors of OpenRing. `ops` and `backend` must
  // outlive the probe. Ranks are assigned to devices as in RankSet.
  static absl::StatusOr<std::unique_ptr<RingProbe>> Create(const RingProbeOptions& options,
                                                           const OpTable& ops, Backend& backend);
  RingProbe(const RingProbe&) = delete;
  RingProbe& operator=(const RingProbe&) = delete;

  // Seconds of one layer, from the common start to the end of the last rank. In it rows [cached,
  // cached + rows) of a striped sequence attend all keys before them, each on the rank that holds
  // its page. cached + rows <= tokens, rows <= options.rows.
  absl::StatusOr<double> Layer(RingMode mode, int32_t rows, int32_t cached);

  // Seconds for one message of `parts` parts: every rank sends one to the next rank and waits for
  // that of the rank before, `rounds` times. Needs two ranks.
  absl::StatusOr<double> Message(int parts, int rounds);

  // Whether messages are copied. If so, Transfer returns the seconds of a message of a single part
  // of `bytes`, at most transfer_bytes().
  bool copies() { return ring_->channel(0).copies(); }
  absl::StatusOr<double> Transfer(size_t bytes, int rounds);
  size_t transfer_bytes() const { return ranks_[0].pages.size(); }

 private:
  struct Rank {
    std::unique_ptr<Stream> stream;
    DeviceBuffer pages;
    DeviceBuffer operands;             // queries of a layer; first the keys and values of pages
    DeviceBuffer state, served, kept;  // o, then lse
    DeviceBuffer slots, arrivals;      // destinations of copies: of a layer, of a message
    DeviceBuffer send_area;            // the channel's
    int32_t page_count = 0;
  };

  RingProbe(const RingProbeOptions& options, const OpTable& ops, Backend& backend);
  Backend& DeviceOf(int rank) const;
  int shards() const { return ShardsFor(options_.ranks); }
  RingSlotPlan SlotPlan() const;
  absl::Status AddRank(int rank);
  absl::Status TakeSlots(Backend& device, int index);
  absl::Status FillPages(Rank& rank);
  AttentionState State(DeviceBuffer& buffer, int64_t rows) const;
  RingItem Item(int rank, RingMode mode, int32_t rows, int32_t cached) const;
  absl::Status RunLayer(int rank, std::span<const RingItem> items,
                        std::span<const ItemShards> shards, const StateRows& states);
  absl::Status SendAround(int rank, const std::vector<size_t>& parts, int rounds);
  absl::StatusOr<double> Together(const std::function<absl::Status(int rank)>& work);

  const RingProbeOptions options_;
  const OpTable& ops_;
  Backend& backend_;
  const size_t page_bytes_;
  std::unique_ptr<RingGroup> ring_;
  Heartbeat heartbeat_;
  std::vector<Rank> ranks_;
  std::vector<PageEntry> table_;
  uint64_t tag_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_EXCHANGE_RING_PROBE_H_
