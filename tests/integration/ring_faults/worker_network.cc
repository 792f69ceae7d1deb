#include "tests/integration/ring_faults/worker_network.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace annulus::server {
namespace {

bool Succeeds(const std::string& command) { return std::system(command.c_str()) == 0; }
void Run(const std::string& command) { EXPECT_TRUE(Succeeds(command)) << command; }

std::string Within(pid_t process, const std::string& command) {
  return absl::StrCat("nsenter --net=/proc/", process, "/ns/net ", command);
}

}  // namespace

absl::Status WorkerNetwork::CanBeMade() {
  for (const char* const tool : {"ip", "nft", "nsenter", "unshare"}) {
    if (Succeeds(absl::StrCat("command -v ", tool, " >/dev/null"))) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "there is no command ", tool, "; install the packages iproute2, nftables and util-linux"));
  }
  if (!Succeeds("unshare --net sh -c 'ip link add annulus0 type veth peer name annulus1 && "
                "nft add table inet annulus' 2>/dev/null")) {
    return absl::FailedPreconditionError(
        "this process may not make networks; run it as root, where the kernel has veth and "
        "nf_tables");
  }
  return absl::OkStatus();
}

WorkerNetwork::WorkerNetwork()
    : device_(absl::StrCat("annulus", getpid() % 10'000'000)), subnet_(getpid() % 250) {
  Run(absl::StrCat("ip link add ", device_, " type bridge"));
  Run(absl::StrCat("ip addr add ", address(), "/24 dev ", device_));
  Run(absl::StrCat("ip link set ", device_, " up"));
}

WorkerNetwork::~WorkerNetwork() { Run(absl::StrCat("ip link del ", device_)); }

std::string WorkerNetwork::Address(int number) const {
  return absl::StrCat("10.213.", subnet_, ".", number);
}

std::string WorkerNetwork::CableOf(pid_t process) const {
  return absl::StrCat("annv", process % 10'000'000);
}

std::vector<std::string> WorkerNetwork::Apart(const std::string& fifo,
                                              const std::vector<std::string>& command) {
  std::vector<std::string> all = {
      "unshare", "--net", "sh", "-c", "echo apart && read line <\"$0\" && exec \"$@\"", fifo};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

void WorkerNetwork::Connect(pid_t process) {
  // Addresses of those that are gone are free again.
  last_ = last_ == 254 ? 2 : last_ + 1;
  const std::string cable = CableOf(process);
  Run(absl::StrCat("ip link add ", cable, " type veth peer name eth0 netns ", process));
  Run(absl::StrCat("ip link set ", cable, " master ", device_, " up"));
  Run(Within(process, "ip link set lo up"));
  Run(Within(process, absl::StrCat("ip addr add ", Address(last_), "/24 dev eth0")));
  Run(Within(process, "ip link set eth0 up"));
}

void WorkerNetwork::Drop(pid_t process, bool drops) {
  if (!drops) return Run(Within(process, "nft flush ruleset"));
  Run(Within(process,
             "nft 'table inet annulus { "
             "chain in { type filter hook input priority 0; policy drop; }; "
             "chain out { type filter hook output priority 0; policy drop; }; }'"));
}

void WorkerNetwork::Plug(pid_t process, bool plugged) {
  Run(absl::StrCat("ip link set ", CableOf(process), plugged ? " up" : " down"));
}

}  // namespace annulus::server
