#ifndef ANNULUS_TESTS_ENGINE_WORKERS_WORKER_RING_H_
#define ANNULUS_TESTS_ENGINE_WORKERS_WORKER_RING_H_

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/workers/remote_ranks.h"
#include "engine/workers/worker_ranks.h"
#include "tests/support/linked_workers.h"
#include "tests/support/step_driver.h"
#include "tests/support/wire_rings.h"

namespace annulus::testing {

inline RingAgreement AgreementOfModel(const RankModel& model) {
  return {"build 1", model.ops->name, PageLayoutOf(model), "fingerprint 1"};
}

// A worker that is a thread of this process.
class WorkerThread {
 public:
  WorkerThread(CpuWorld& world, const RankModel& model, WorkerRanksOptions options)
      : pair_(std::make_shared<LinkedPair>("the pair of " + options.name)),
        link_(LinkedPair::End(pair_, 1)),
        thread_([&world, &model, options = std::move(options), this] {
          ended_ = ServeRanks(model, *world.backend, options, *link_);
        }) {}
  ~WorkerThread() {
    pair_->Cut();
    if (thread_.joinable()) thread_.join();
  }

  LinkedPair& pair() { return *pair_; }
  // Once.
  std::unique_ptr<WorkerLink> CoordinatorEnd() { return LinkedPair::End(pair_, 0); }
  // Waits until it has ended by itself.
  absl::Status Join() {
    thread_.join();
    return ended_;
  }

 private:
  const std::shared_ptr<LinkedPair> pair_;
  const std::unique_ptr<WorkerLink> link_;
  absl::Status ended_;
  std::thread thread_;
};

// What makes a ring of ranks here and at workers. Must outlive its ranks.
class WorkerRing {
 public:
  WorkerRing(CpuWorld& world, const RankModel& model, WireKind kind = WireKind::kMemory)
      : world_(world), model_(model), kind_(kind) {}

  WorkerRanksOptions WorkerOptionsOf(const std::string& name, int ranks) const {
    WorkerRanksOptions options;
    options.name = name;
    options.ranks = ranks;
    options.engine.threads = 1;
    options.agreement = AgreementOfModel(model_);
    options.open_carrier = [kind = kind_] { return OpenCarrier(kind); };
    return options;
  }
  WorkerThread& Add(WorkerRanksOptions options) {
    workers_.push_back(std::make_unique<WorkerThread>(world_, model_, std::move(options)));
    source_.Add(workers_.back()->CoordinatorEnd());
    return *workers_.back();
  }
  WorkerThread& Add(const std::string& name, int ranks) {
    return Add(WorkerOptionsOf(name, ranks));
  }

  // Of the first `local` of `all` ranks. No test waits for a worker that is alive as long as this.
  RemoteRanksOptions OptionsOf(int local, int all) const {
    RemoteRanksOptions options;
    options.set.span = {.local = local, .all = all};
    options.set.engine.threads = std::max(1, local);
    options.set.rows_per_rank = 64;
    options.kv_bytes_per_rank = size_t{4} << 20;
    options.set.engine.kv_memory_bytes = options.kv_bytes_per_rank * static_cast<size_t>(local);
    options.agreement = AgreementOfModel(model_);
    options.open_carrier = [kind = kind_] { return OpenCarrier(kind); };
    options.silence = std::chrono::minutes(2);
    options.replacement_timeout = std::chrono::minutes(1);
    return options;
  }
  absl::StatusOr<std::unique_ptr<RemoteRanks>> Create(const RemoteRanksOptions& options) {
    return RemoteRanks::Create(model_, *world_.backend, source_, options);
  }
  AddedWorkers& source() { return source_; }

 private:
  CpuWorld& world_;
  const RankModel& model_;
  const WireKind kind_;
  AddedWorkers source_;
  std::vector<std::unique_ptr<WorkerThread>> workers_;
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_WORKERS_WORKER_RING_H_
