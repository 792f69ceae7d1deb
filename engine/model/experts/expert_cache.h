#ifndef ANNULUS_ENGINE_MODEL_EXPERTS_EXPERT_CACHE_H_
#define ANNULUS_ENGINE_MODEL_EXPERTS_EXPERT_CACHE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/experts/expert_memory.h"
#include "engine/model/weights/matrix_loader.h"
#include "engine/model/weights/weights.h"
#include "kernels/base/device_buffer.h"
#include "kernels/registry.h"

namespace annulus {

// Counted since the start, over all ranks of the process.
struct ExpertCounts {
  int64_t hits = 0;          // experts that were in memory when a step asked for them
  int64_t misses = 0;        // experts that were not
  int64_t read_bytes = 0;    // of experts that were brought in, as they are packed
  double wait_seconds = 0;   // in which ranks waited for experts, added up
  int64_t steps = 0;         // steps of ranks that needed experts
  int64_t waited_steps = 0;  // of these, steps that waited
};

// The experts that are in memory, of a model whose experts do not all fit. Memory is a fixed number
// of slots, and one copy serves all ranks. An expert that is missing is read from the checkpoint
// and packed as LoadWeights packs, so it has the same bytes as if it had always been in memory, and
// steps give the same bits. Its price is to read and pack it again. Reads are positioned reads of
// TensorSource: a file that was truncated or changed gives an error and raises no signal.
//
// A step walks through the experts that it needs of a layer in ascending order and pins one at a
// time, so it may need more experts than there are slots. While it computes with one, readers bring
// in the missing ones that follow, in order.
//
// What to give up is decided by the router's counts: each walk adds to an expert's score the share
// of the layer's choices that fell on it, and scores are halved every kHalfLife walks of the layer.
// The lowest score goes first, among equal ones the least recently used. Experts that a walk still
// needs stay, unless another walk is blocked and nothing else can go.
//
// No deadlock: a walk that waits pins nothing, and one that pins waits for no expert. Thread-safe.
class ExpertCache {
 public:
  static constexpr int64_t kHalfLife = 64;

  struct Parts {
    std::vector<ExpertPlace> places;  // layer by layer, of layers with experts alone
    int32_t experts = 0;              // of a layer
    std::vector<int32_t> first;       // [layer] its first place; -1: it has no experts
    ExpertSlotSizes sizes;
    DeviceBuffer storage;  // sizes.bytes(), which the host can write
    const OpTable* ops = nullptr;
    // Makes a reader's MatrixReader, which may use `source`.
    std::function<MatrixReader()> make_reader;
    std::shared_ptr<const TensorSource> source;
    int readers = 1;
    ReadingBytes reading;  // of each reader
    std::chrono::milliseconds longest_wait{0};
  };
  explicit ExpertCache(Parts parts);
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;
  // Waits for reads under way, which nobody can end: if the disk hangs, as long as it does. Whoever
  // must not wait so long ends the process. No walk may be left.
  ~ExpertCache();

  // Adds the matrices of all experts to those that LoadMatrices reads and checks. As many experts
  // as there are slots get a target, the same of each layer. Call once, before Start.
  void AddMatrices(std::vector<MatrixToLoad>& matrices);

  // Starts the readers, each with all memory that it needs. Call it when the matrices of
  // AddMatrices and all biases are loaded. RESOURCE_EXHAUSTED if the system gives no thread or no
  // memory.
  absl::Status Start();

  size_t bytes() const { return parts_.sizes.bytes(); }
  // What each reader takes besides.
  size_t reader_bytes() const { return parts_.reading.total(); }
  ExpertCounts counts() const;

  // Counts a step of a rank that needed experts.
  void CountStep(bool waited);

  // Ends the waits of the steps under way: until Resume, Hold returns `why` where it would wait.
  // The first status wins; it must not be OK. Reads go on, and nothing waits for them.
  void Abort(const absl::Status& why);
  // Call it when no step runs.
  void Resume();

  // A step's way through the experts of one layer. Used by one thread.
  class Walk {
   public:
    // `ends`: [experts + 1]; the walk needs expert e if ends[e + 1] > ends[e], for as many choices
    // of the router. Must not change while the walk lives.
    Walk(ExpertCache& cache, int layer, std::span<const int32_t> ends);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;

    // Waits until the expert is in memory, and returns it, valid until the next call or the end of
    // the walk. Needed experts alone, ascending. The wait ends with the error of reading one that
    // the walk needs, with the status of Abort, and with DEADLINE_EXCEEDED if no expert has come
    // for longest_wait, as when the disk hangs.
    absl::StatusOr<const GatedWeights*> Hold(int32_t expert);

    // Whether Hold has waited.
    bool waited() const { return waited_; }

   private:
    friend class ExpertCache;
    bool Needs(int32_t expert) const {
      const auto e = static_cast<size_t>(expert);
      return expert >= next_ && ends_[e + 1] > ends_[e];
    }

    ExpertCache& cache_;
    const int32_t first_;  // place of expert 0
    const std::span<const int32_t> ends_;
    // The rest is guarded by ExpertCache::mutex_, but for `waited_`.
    int32_t next_ = 0;      // experts below are done with
    int32_t held_ = -1;     // the slot that is pinned; -1: none
    int32_t awaited_ = -1;  // the place that Hold waits for; -1: it does not wait
    absl::Status failed_;   // of reading an expert that the walk needs
    bool waited_ = false;
  };

 private:
  struct Slot {
    int32_t place = -1;  // whose expert; -1: nobody's
    bool ready = false;  // not while the expert is read
    int32_t pins = 0;
    int64_t used = 0;      // when it was last pinned: a count of pins
    GatedWeights weights;  // matrices in Parts::storage, biases of the expert
  };
  struct Load {
    int32_t place;
    int32_t slot;
  };

  void Begin(Walk& walk);
  void End(Walk& walk);
  void CountChoices(const Walk& walk);
  absl::StatusOr<const GatedWeights*> Hold(Walk& walk, int32_t expert);
  absl::Status Await(Walk& walk, int32_t place, std::unique_lock<std::mutex>& lock);
  void Release(Walk& walk);

  // What readers do, all with the mutex held but Fill.
  void Read(MatrixReader& reader);
  std::optional<Load> NextLoad();
  int32_t FindSlot(bool blocked) const;
  bool GoesBefore(const Slot& a, const Slot& b) const;
  int32_t NextMissing(const Walk& walk) const;
  bool IsNeeded(int32_t place) const;
  bool IsAwaited(int32_t place) const;
  void Occupy(const Load& load);
  void Finish(const Load& load, const absl::Status& status);
  absl::Status Fill(const Load& load, MatrixReader& reader);
  void Shape(Slot& slot, const ExpertPlace& place);
  static void BorrowBiases(const ExpertPlace& place, Slot& slot);

  bool IsReady(int32_t place) const {
    const int32_t slot = slot_of_[static_cast<size_t>(place)];
    return slot >= 0 && slots_[static_cast<size_t>(slot)].ready;
  }

  Parts parts_;
  std::vector<std::thread> readers_;

  mutable std::mutex mutex_;       // guards what follows
  std::condition_variable work_;   // something to read, or a slot for it
  std::condition_variable ready_;  // a read has ended
  std::vector<Slot> slots_;
  std::vector<int32_t> slot_of_;  // [place]; -1: not in memory, and not being read
  std::vector<float> scores_;     // [place]
  std::vector<int64_t> begun_;    // [place / experts] walks
  std::vector<Walk*> walks_;
  int64_t uses_ = 0;      // for Slot::used
  int64_t finished_ = 0;  // reads, failed ones too
  bool no_slot_ = false;  // a reader found something to read, and no slot for it
  bool stopping_ = false;
  absl::Status aborted_;  // OK: waits may go on
  ExpertCounts counts_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_EXPERTS_EXPERT_CACHE_H_
