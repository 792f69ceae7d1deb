#ifndef ANNULUS_TESTS_INTEGRATION_RING_FAULTS_WORKER_NETWORK_H_
#define ANNULUS_TESTS_INTEGRATION_RING_FAULTS_WORKER_NETWORK_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace annulus::server {

// A bridge of this machine to which processes are connected that have a network of their own, so
// that a test can cut one off. What it makes ends with the processes and with the object. Methods
// fail the test if a command does not succeed.
class WorkerNetwork {
 public:
  // Why there can be none here, with what to do: it needs root, and the commands ip, nft, nsenter
  // and unshare.
  static absl::Status CanBeMade();

  WorkerNetwork();
  ~WorkerNetwork();
  WorkerNetwork(const WorkerNetwork&) = delete;

  // Of this machine in that network.
  const std::string& device() const { return device_; }
  std::string address() const { return Address(1); }

  // A command that runs another one in a network that is not connected. That begins once the FIFO
  // has a line.
  static std::vector<std::string> Apart(const std::string& fifo,
                                        const std::vector<std::string>& command);
  // Connects the network of the process, which says "apart" once it has one.
  void Connect(pid_t process);
  // Whether what the process sends, and what is sent to it, is dropped without a word.
  void Drop(pid_t process, bool drops);
  // Whether its cable is plugged in.
  void Plug(pid_t process, bool plugged);

 private:
  std::string Address(int number) const;
  std::string CableOf(pid_t process) const;

  const std::string device_;
  const int subnet_;
  int last_ = 1;  // address
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_INTEGRATION_RING_FAULTS_WORKER_NETWORK_H_
