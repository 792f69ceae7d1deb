#include "tests/integration/ring_faults/faulty_ring.h"

#include <fcntl.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "annulus/v1/admin.grpc.pb.h"
#include "kernels/base/check.h"
#include "tests/integration/ring_answer.h"
#include "tests/server/test_server.h"
#include "tests/support/eventually.h"
#include "tests/support/test_data.h"

namespace annulus::server {
namespace {

std::string WatchedProgram() { return testing::BuildFolder() / "tests/annulusd_watched"; }

int NumberAfter(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::stoi(text.substr(at + key.size()));
}

std::vector<std::string> Joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

WatchedWorker::WatchedWorker(const std::string& coordinator, const std::string& name,
                             const std::string& folder, const std::vector<std::string>& flags,
                             WorkerNetwork* network)
    : name_(name), path_(absl::StrCat(folder, "/", name)) {
  ANNULUS_CHECK(mkfifo(path_.c_str(), 0600) == 0) << "no FIFO at " << path_;
  orders_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ANNULUS_CHECK(orders_ >= 0) << "no FIFO at " << path_;
  std::vector<std::string> command = Joined(
      {WatchedProgram(), "--join", coordinator, "--worker-name", name, "--threads", "1"}, flags);
  if (network != nullptr) command = WorkerNetwork::Apart(path_, command);
  program_ = std::make_unique<Program>(
      command, std::vector<std::string>{absl::StrCat("FAULT_ORDERS=", path_)});
  if (network == nullptr) return;
  EXPECT_TRUE(program_->WaitForOutput("apart\n", kRingLimit)) << program_->output();
  network->Connect(program_->pid());
  EXPECT_EQ(write(orders_, "\n", 1), 1);
}

WatchedWorker::~WatchedWorker() {
  close(orders_);
  unlink(path_.c_str());
}

int WatchedWorker::Order(const std::string& verb, const std::string& rest) {
  const int serial = ++last_;
  const std::string line = absl::StrCat(verb, " ", serial, rest, "\n");
  EXPECT_EQ(write(orders_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  return serial;
}

void WatchedWorker::WaitFor(int serial, const std::string& word) {
  const std::string line = absl::StrCat("fault ", serial, " ", word, "\n");
  ASSERT_TRUE(program_->WaitForOutput(line, kRingLimit)) << name_ << ": " << line;
}

int WatchedWorker::StopAt(const std::string& moment, int count) {
  const int serial = Order("stop", absl::StrCat(" ", moment, " ", count));
  WaitFor(serial, "armed");
  return serial;
}

int WatchedWorker::Flip() {
  const int serial = Order("flip");
  WaitFor(serial, "armed");
  return serial;
}

void WatchedWorker::Go(int serial) {
  const std::string line = absl::StrCat("go ", serial, "\n");
  EXPECT_EQ(write(orders_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
}

void WatchedWorker::Catch() { WaitFor(Order("tell"), "told"); }

std::string WatchedWorker::LastWordsAfter(const std::string& key) const {
  const std::string& said = program_->output();
  const size_t at = said.rfind(key);
  if (at == std::string::npos) return "";
  const size_t from = at + key.size();
  return said.substr(from, said.find('\n', from) - from);
}

int WatchedWorker::rank() const {
  const std::string words = LastWordsAfter("fault_rank ");
  return words.empty() ? -1 : std::stoi(words);
}

int WatchedWorker::dialled() const {
  const std::string words = LastWordsAfter("fault_dialled ");
  return words.empty() ? 0 : std::stoi(words);
}

std::vector<SequenceRoles> WatchedWorker::sequences() const {
  constexpr char kKey[] = "fault_sequence ";
  std::map<uint64_t, SequenceRoles> roles;
  const std::string& said = program_->output();
  for (size_t at = said.find(kKey); at != std::string::npos; at = said.find(kKey, at + 1)) {
    std::istringstream words(said.substr(at, said.find('\n', at) - at));
    std::string skipped;
    SequenceRoles one;
    words >> skipped >> one.sequence >> skipped >> one.home >> skipped;
    for (int rank = 0; words >> rank;) one.ring.push_back(rank);
    roles[one.sequence] = one;
  }
  std::vector<SequenceRoles> all;
  for (auto& [sequence, one] : roles) all.push_back(std::move(one));
  return all;
}

FaultyRing::FaultyRing(std::vector<std::string> flags, std::vector<std::string> of_coordinator,
                       WorkerNetwork* network)
    : flags_(std::move(flags)), network_(network) {
  const std::string host = network == nullptr ? "127.0.0.1" : network->address();
  TestIdentity identity;
  std::vector<std::string> variables;
  if (network != nullptr) {
    flags_ = Joined(std::move(flags_), MakeCertificates(identity));
    variables.push_back(absl::StrCat("UCX_NET_DEVICES=", network->device()));
  }
  coordinator_ = std::make_unique<Daemon>(
      Joined(Joined(flags_, of_coordinator), {"--ranks", absl::StrCat(kRanks), "--workers-listen",
                                              absl::StrCat(host, ":0"), "--threads", "1"}),
      variables, WatchedProgram());
  EXPECT_TRUE(coordinator_->WaitForOutput(" ring_waits ", kRingLimit)) << coordinator_->output();
  const auto local = [this](const std::string& key) {
    return absl::StrCat("127.0.0.1:", NumberAfter(coordinator_->output(), key));
  };
  join_ = absl::StrCat(host, ":", NumberAfter(coordinator_->output(), " workers_port="));
  metrics_ = local(" metrics_port=");
  if (network == nullptr) {
    channel_ = PlainChannel(local(" port="));
    return;
  }
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(host);
  channel_ = grpc::CreateCustomChannel(
      local(" port="),
      grpc::SslCredentials({identity.certificate, identity.key, identity.certificate}), arguments);
}

// One for all, signed by itself. Returns the flags.
std::vector<std::string> FaultyRing::MakeCertificates(TestIdentity& identity) const {
  identity = MakeIdentity(network_->address(), 24L * 3600);
  folder_.Write("ring.pem", identity.certificate);
  folder_.Write("ring.key", identity.key);
  const std::string pem = folder_.path() / "ring.pem";
  return {"--tls-certificate", pem, "--tls-key", folder_.path() / "ring.key",
          "--tls-client-ca",   pem};
}

WatchedWorker& FaultyRing::StartWorker() {
  workers_.push_back(std::make_unique<WatchedWorker>(join_, absl::StrCat("w", ++started_),
                                                     folder_.path().string(), flags_, network_));
  return *workers_.back();
}

void FaultyRing::Restore() {
  const size_t before = workers_.size();
  while (workers_.size() < kRanks - 1 + kSpares) StartWorker();
  for (size_t i = before; i < workers_.size(); ++i) {
    ASSERT_TRUE(workers_[i]->program().WaitForOutput("fault_dialled ", kRingLimit))
        << workers_[i]->program().output();
  }
  ASSERT_TRUE(coordinator_->WaitUntilReady()) << coordinator_->output();
  ASSERT_TRUE(testing::Eventually([this] { return Info().awaited().empty(); })) << Info().awaited();
  for (const auto& worker : workers_) worker->Catch();
  EXPECT_EQ(coordinator_->WaitForExit(std::chrono::milliseconds(1)), std::nullopt);  // reads it
}

WatchedWorker& FaultyRing::HostOf(int rank) {
  WatchedWorker* host = nullptr;
  const auto found = [&] {
    for (const auto& worker : workers_) {
      worker->Catch();
      if (worker->rank() == rank) host = worker.get();
    }
    return host != nullptr;
  };
  ANNULUS_CHECK(testing::Eventually(found)) << "nobody hosts rank " << rank;
  return *host;
}

void FaultyRing::Kill(const WatchedWorker& worker) {
  const auto found = std::find_if(workers_.begin(), workers_.end(),
                                  [&](const auto& one) { return one.get() == &worker; });
  (*found)->program().Signal(SIGKILL);
  workers_.erase(found);
}

int64_t FaultyRing::Losses(const std::string& cause) {
  const auto samples = ScrapeSamples(metrics_);
  const auto found = samples.find(absl::StrCat("annulus_ring_losses_total{cause=\"", cause, "\"}"));
  return found == samples.end() ? 0 : static_cast<int64_t>(found->second);
}

v1::GetServerInfoResponse FaultyRing::Info() const {
  const auto stub = v1::AdminService::NewStub(channel_);
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  const grpc::Status status = stub->GetServerInfo(&context, {}, &info);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return info;
}

}  // namespace annulus::server
