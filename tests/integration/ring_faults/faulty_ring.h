#ifndef ANNULUS_TESTS_INTEGRATION_RING_FAULTS_FAULTY_RING_H_
#define ANNULUS_TESTS_INTEGRATION_RING_FAULTS_FAULTY_RING_H_

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "annulus/v1/admin.pb.h"
#include "tests/integration/daemon.h"
#include "tests/integration/ring_faults/worker_network.h"
#include "tests/server/certificates.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {

// Longest wait for anything that a process of the ring must do.
inline constexpr std::chrono::seconds kRingLimit{60};

// Which ranks have a sequence, as workers heard it.
struct SequenceRoles {
  uint64_t sequence = 0;
  int home = 0;
  std::vector<int> ring;
};

// A worker that a test can stop at its moments: see orders.h. Waits of the methods below end after
// kRingLimit, with a failure of the test.
class WatchedWorker {
 public:
  // Starts it, to dial the coordinator at this address. `folder` is for its FIFO. `network`: its
  // own is connected to that; null: it shares this machine's.
  WatchedWorker(const std::string& coordinator, const std::string& name, const std::string& folder,
                const std::vector<std::string>& flags, WorkerNetwork* network);
  ~WatchedWorker();
  WatchedWorker(const WatchedWorker&) = delete;

  Program& program() { return *program_; }
  const std::string& name() const { return name_; }

  // Give it an order. Those that return a serial wait until it is armed.
  int StopAt(const std::string& moment, int count = 1);
  int Flip();
  void Go(int serial);
  void WaitFor(int serial, const std::string& word);

  // Reads all that it has said so far. Requires that it runs.
  void Catch();
  // As of the last Catch: its first rank, or -1; how often it dialled; the newest sequences of
  // which it heard, each with its latest roles, ascending.
  int rank() const;
  int dialled() const;
  std::vector<SequenceRoles> sequences() const;

 private:
  int Order(const std::string& verb, const std::string& rest = "");
  std::string LastWordsAfter(const std::string& key) const;

  const std::string name_;
  const std::string path_;
  int orders_ = -1;
  int last_ = 0;  // serial
  std::unique_ptr<Program> program_;
};

// A coordinator with the first rank of four, three workers with one each, and spares.
class FaultyRing {
 public:
  static constexpr int kRanks = 4;
  static constexpr int kSpares = 3;

  // `flags` are those of all processes, `of_coordinator` of one. `network`: each worker has one of
  // its own, connected to that, and all have certificates; null: all processes share this
  // machine's.
  FaultyRing(std::vector<std::string> flags, std::vector<std::string> of_coordinator,
             WorkerNetwork* network = nullptr);

  Daemon& coordinator() { return *coordinator_; }
  // For clients.
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  WatchedWorker& StartWorker();
  // Starts workers in place of those that were killed, and waits until the ring is whole, with all
  // its spares.
  void Restore();
  // The worker that hosts the rank, now or soon.
  WatchedWorker& HostOf(int rank);
  // Kills the worker, and forgets it.
  void Kill(const WatchedWorker& worker);
  const std::vector<std::unique_ptr<WatchedWorker>>& workers() const { return workers_; }
  // annulus_ring_losses_total{cause=".."}.
  int64_t Losses(const std::string& cause);
  v1::GetServerInfoResponse Info() const;

 private:
  std::vector<std::string> MakeCertificates(TestIdentity& identity) const;

  std::vector<std::string> flags_;
  WorkerNetwork* const network_;
  const testing::TempDirectory folder_;
  std::unique_ptr<Daemon> coordinator_;
  std::string join_;
  std::shared_ptr<grpc::Channel> channel_;
  std::string metrics_;
  int started_ = 0;
  std::vector<std::unique_ptr<WatchedWorker>> workers_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_INTEGRATION_RING_FAULTS_FAULTY_RING_H_
