// A ring whose ranks are in several processes: a coordinator and its workers, as users start them.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/admin.grpc.pb.h"
#include "engine/ring/wire/ucx_library.h"
#include "tests/integration/daemon.h"
#include "tests/integration/plain_model.h"
#include "tests/integration/ring_answer.h"
#include "tests/server/http2_peer.h"
#include "tests/server/test_server.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr seconds kLimit{60};

// A worker, which serves no clients.
class WorkerProcess : public Program {
 public:
  WorkerProcess(const std::string& coordinator, std::vector<std::string> flags)
      : Program(Arguments(coordinator, std::move(flags))) {}

 private:
  static std::vector<std::string> Arguments(const std::string& coordinator,
                                            std::vector<std::string> flags) {
    flags.insert(flags.begin(),
                 {testing::BuildFolder() / "annulusd", "--join", coordinator, "--threads", "1"});
    return flags;
  }
};

class WorkersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LoadUcx().ok()) GTEST_SKIP() << "libucx0 is not installed";
  }

  // Flags that spread a prompt of a few hundred tokens over all ranks.
  std::vector<std::string> Flags(std::vector<std::string> more) const {
    more.insert(more.end(), {"--model", model_, "--page-tokens", "16", "--tokens-per-rank", "32",
                             "--kv-memory", kv_memory_, "--threads", "1"});
    return more;
  }
  std::vector<std::string> WorkerFlags(std::vector<std::string> more) const {
    more.insert(more.end(), {"--model", model_, "--page-tokens", "16"});
    return more;
  }

  // Starts a coordinator on a free port, which it says when it listens.
  std::unique_ptr<Daemon> Coordinator(int ranks, const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags = {"--ranks", absl::StrCat(ranks), "--workers-listen",
                                      "127.0.0.1:0"};
    flags.insert(flags.end(), more.begin(), more.end());
    auto daemon = std::make_unique<Daemon>(Flags(flags));
    EXPECT_TRUE(daemon->WaitForOutput(" ring_waits ", kLimit)) << daemon->output();
    join_ = absl::StrCat("127.0.0.1:", Number(*daemon, " workers_port="));
    listen_ = absl::StrCat("127.0.0.1:", Number(*daemon, " port="));
    return daemon;
  }
  static int Number(const Program& daemon, const std::string& key) {
    const size_t at = daemon.output().find(key);
    return at == std::string::npos ? 0 : std::stoi(daemon.output().substr(at + key.size()));
  }

  // About a text that begins with the square of `first`.
  static v1::GenerationSpec SpecOf(int max_tokens, int first = 0) {
    v1::GenerationSpec spec;
    std::string text;
    for (int i = first; i < first + 60; ++i) absl::StrAppend(&text, "line ", i * i, "; ");
    spec.set_text(text);
    spec.mutable_sampling()->set_temperature(0.8F);
    spec.mutable_sampling()->set_seed(7);
    spec.mutable_sampling()->set_ignore_eos(true);
    spec.mutable_sampling()->set_max_tokens(max_tokens);
    AskForAllOfAnswer(spec);
    return spec;
  }

  static Answer Ask(const std::string& address, int max_tokens = 24) {
    return AskFor(PlainChannel(address), SpecOf(max_tokens));
  }

  // The same answer as a stream. `in_answer`: called once 20 tokens have come.
  static StreamedAnswer Stream(const std::string& address, int max_tokens,
                               const std::function<void()>& in_answer) {
    std::optional<steady_clock::time_point> called;
    const auto on_tokens = [&](size_t tokens) {
      if (called.has_value() || tokens < 20) return;
      called = steady_clock::now();
      in_answer();
    };
    StreamedAnswer streamed = StreamAnswer(PlainChannel(address), SpecOf(max_tokens), on_tokens);
    EXPECT_TRUE(streamed.status.ok()) << streamed.status.error_message();
    EXPECT_TRUE(called.has_value());
    const double pause = streamed.LongestPause(called.value_or(steady_clock::now()));
    RecordProperty("pause_ms", static_cast<int>(1000 * pause));
    return streamed;
  }
  void ExpectRecovered(const StreamedAnswer& streamed, const Answer& expected) {
    EXPECT_EQ(streamed.answer, expected);
    EXPECT_GE(streamed.recovered, 1);
    EXPECT_EQ(streamed.repaired, streamed.recovered);
  }

  // The same ring in one process.
  Answer AskOneProcess(int ranks) const {
    Daemon daemon(Flags({"--ranks", absl::StrCat(ranks)}));
    EXPECT_TRUE(daemon.WaitUntilReady()) << daemon.output();
    return Ask(daemon.address());
  }

  v1::GetServerInfoResponse Info() const {
    const auto stub =
        v1::AdminService::NewStub(grpc::CreateChannel(listen_, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    const grpc::Status status = stub->GetServerInfo(&context, {}, &info);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return info;
  }

  v1::GetLoadResponse Load() const {
    const auto stub =
        v1::AdminService::NewStub(grpc::CreateChannel(listen_, grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::GetLoadResponse load;
    const grpc::Status status = stub->GetLoad(&context, {}, &load);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return load;
  }

  // Asks about so many other texts that the memory of ranks with 8 MiB has nothing of those before.
  void FillMemory() {
    for (int i = 0; i < 8; ++i) AskFor(PlainChannel(listen_), SpecOf(1, next_text_ += 100));
  }

  const testing::TempDirectory folder_;
  const std::string model_ = testing::PlainModel(folder_);
  std::string kv_memory_ = "64MiB";
  std::string join_;    // of the coordinator
  std::string listen_;  // likewise, for clients
  int next_text_ = 0;
};

TEST_F(WorkersTest, TwoProcessesAnswerAsOneDoes) {
  const auto coordinator = Coordinator(2);
  EXPECT_EQ(Info().state(), v1::SERVER_STATE_LOADING);
  EXPECT_THAT(Info().awaited(), HasSubstr("of 2 ranks 1 is missing"));
  WorkerProcess worker(join_, WorkerFlags({}));
  ASSERT_TRUE(coordinator->WaitUntilReady()) << coordinator->output() << worker.output();
  EXPECT_EQ(Info().awaited(), "");
  const Answer answer = Ask(coordinator->address());
  EXPECT_EQ(answer.ids.size(), 24u);
  EXPECT_EQ(answer.logprobs.size(), 24u);
  EXPECT_EQ(answer.digest.size(), 64u);
  EXPECT_EQ(answer, AskOneProcess(2));
  // Each ends within its bound, and the worker outlives its coordinator.
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(coordinator->WaitForExit(seconds(40)), 0) << coordinator->output();
  ASSERT_TRUE(worker.WaitForOutput(" no_coordinator ", kLimit)) << worker.output();
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.WaitForExit(seconds(20)), 0) << worker.output();
}

// What operators see of both sides.
TEST_F(WorkersTest, CoordinatorAndWorkersTellOfTheRing) {
  const auto coordinator = Coordinator(3);
  const std::string metrics = absl::StrCat("127.0.0.1:", Number(*coordinator, "metrics_port="));
  WorkerProcess one(join_, WorkerFlags({"--worker-name", "one", "--metrics", "127.0.0.1:0"}));
  ASSERT_TRUE(one.WaitForOutput(" connected ", kLimit)) << one.output();
  const std::string worker = absl::StrCat("127.0.0.1:", Number(one, "metrics_port="));
  ASSERT_TRUE(coordinator->WaitForOutput("of 3 ranks 1 is missing", kLimit));
  EXPECT_EQ(ScrapeSamples(metrics)["annulus_ring_incomplete"], 1);
  EXPECT_EQ(HttpGet(worker, "/healthz"), "alive\n");
  EXPECT_EQ(HttpGet(worker, "/readyz"), "loading\n");
  EXPECT_EQ(ScrapeSamples(worker)["annulus_worker_connected"], 1);
  EXPECT_EQ(ScrapeSamples(worker)["annulus_epoch"], 0);
  auto two = std::make_unique<WorkerProcess>(join_, WorkerFlags({"--worker-name", "two"}));
  ASSERT_TRUE(coordinator->WaitUntilReady()) << coordinator->output();
  Ask(coordinator->address());
  auto samples = ScrapeSamples(metrics);
  EXPECT_EQ(samples["annulus_ring_incomplete"], 0);
  EXPECT_EQ(samples["annulus_epoch"], 1);
  EXPECT_EQ(samples["annulus_workers{state=\"up\"}"], 2);
  EXPECT_EQ(samples["annulus_worker_up{worker=\"two\"}"], 1);
  EXPECT_GT(samples["annulus_worker_exposed_seconds_total{worker=\"one\"}"], 0);
  EXPECT_TRUE(samples.contains("annulus_worker_silence_seconds{worker=\"one\"}"));
  EXPECT_GT(samples["annulus_link_bytes_per_second"], 0);
  EXPECT_GT(samples["annulus_link_message_seconds"], 0);
  EXPECT_EQ(HttpGet(worker, "/readyz"), "serving\n");
  EXPECT_TRUE(Eventually([&] {
    auto now = ScrapeSamples(worker);
    return now["annulus_worker_rank_memory_bytes{rank=\"1\",kind=\"kv\"}"] > 0 &&
           now["annulus_worker_steps_total"] > 0 && now["annulus_worker_wait_seconds_total"] > 0;
  }));
  const v1::GetLoadResponse load = Load();
  ASSERT_EQ(load.workers_size(), 2);
  EXPECT_EQ(load.epoch(), 1);
  EXPECT_EQ(load.workers(1).name(), "two");
  EXPECT_EQ(load.workers(1).first_rank(), 2);
  EXPECT_TRUE(load.workers(1).up());
  EXPECT_LT(load.workers(1).silent_seconds(), 30);
  EXPECT_THAT(load.workers(1).peer(), HasSubstr("127.0.0.1:"));
  two.reset();  // killed
  EXPECT_TRUE(Eventually([&] { return !Load().workers(1).up(); }));
}

TEST_F(WorkersTest, FourRanksInThreeProcessesAnswerAsOneDoes) {
  const auto coordinator = Coordinator(4);
  WorkerProcess two(join_, WorkerFlags({"--local-ranks", "2"}));
  WorkerProcess one(join_, WorkerFlags({}));
  ASSERT_TRUE(coordinator->WaitUntilReady())
      << coordinator->output() << two.output() << one.output();
  EXPECT_EQ(Ask(coordinator->address()), AskOneProcess(4));
}

TEST_F(WorkersTest, AWorkerWaitsForItsCoordinator) {
  std::string address;
  {
    const auto gone = Coordinator(2);
    address = join_;
  }
  WorkerProcess worker(address, WorkerFlags({}));
  ASSERT_TRUE(worker.WaitForOutput(" no_coordinator ", kLimit)) << worker.output();
  Daemon coordinator(Flags({"--ranks", "2", "--workers-listen", address}));
  ASSERT_TRUE(coordinator.WaitUntilReady()) << coordinator.output() << worker.output();
  EXPECT_EQ(Ask(coordinator.address()).ids.size(), 24u);
}

TEST_F(WorkersTest, WorkersThatDoNotFitAreRefusedWithAReason) {
  const auto coordinator = Coordinator(3);
  WorkerProcess pages(join_, {"--model", model_, "--page-tokens", "32"});
  EXPECT_EQ(pages.WaitForExit(kLimit), 1);
  EXPECT_THAT(pages.output(), HasSubstr("annulusd: "));
  EXPECT_THAT(pages.output(), AllOf(HasSubstr("page"), HasSubstr("16"), HasSubstr("32")));
  WorkerProcess weights(join_, {"--page-tokens", "16"});
  EXPECT_EQ(weights.WaitForExit(kLimit), 1) << weights.output();
  WorkerProcess kernels(join_, WorkerFlags({"--cpu-isa", "reference"}));
  EXPECT_EQ(kernels.WaitForExit(kLimit), 1);
  EXPECT_THAT(kernels.output(), HasSubstr("--cpu-isa"));
  WorkerProcess many(join_, WorkerFlags({"--local-ranks", "64"}));
  EXPECT_EQ(many.WaitForExit(kLimit), 1);
  EXPECT_THAT(many.output(), HasSubstr("64"));
  WorkerProcess first(join_, WorkerFlags({"--worker-name", "one"}));
  ASSERT_TRUE(first.WaitForOutput(" connected ", kLimit)) << first.output();
  ASSERT_TRUE(coordinator->WaitForOutput("of 3 ranks 1 is missing", kLimit))
      << coordinator->output();
  WorkerProcess second(join_, WorkerFlags({"--worker-name", "one"}));
  EXPECT_EQ(second.WaitForExit(kLimit), 1);
  EXPECT_THAT(second.output(), HasSubstr("one"));
  WorkerProcess other(join_, WorkerFlags({"--worker-name", "two"}));
  ASSERT_TRUE(coordinator->WaitUntilReady()) << coordinator->output() << other.output();
}

TEST_F(WorkersTest, AnAnswerOutlivesAKilledWorker) {
  const auto coordinator = Coordinator(3);
  WorkerProcess one(join_, WorkerFlags({"--worker-name", "one"}));
  WorkerProcess two(join_, WorkerFlags({"--worker-name", "two"}));
  ASSERT_TRUE(coordinator->WaitUntilReady())
      << coordinator->output() << one.output() << two.output();
  WorkerProcess spare(join_, WorkerFlags({"--worker-name", "spare"}));
  ASSERT_TRUE(spare.WaitForOutput(" connected ", kLimit)) << spare.output();
  const Answer expected = Ask(listen_, 300);
  const StreamedAnswer streamed = Stream(listen_, 300, [&] { two.Signal(SIGKILL); });
  ExpectRecovered(streamed, expected);
  EXPECT_EQ(Info().awaited(), "");
  EXPECT_EQ(Ask(listen_, 300), expected);
}

TEST_F(WorkersTest, AWorkerThatStoodStillIsReplacedAndComesBackAsASpare) {
  const auto coordinator = Coordinator(2);
  WorkerProcess one(join_, WorkerFlags({"--worker-name", "one"}));
  ASSERT_TRUE(coordinator->WaitUntilReady()) << coordinator->output() << one.output();
  WorkerProcess spare(join_, WorkerFlags({"--worker-name", "spare"}));
  ASSERT_TRUE(spare.WaitForOutput(" connected ", kLimit)) << spare.output();
  const Answer expected = Ask(listen_, 300);
  ExpectRecovered(Stream(listen_, 300, [&] { one.Signal(SIGSTOP); }), expected);
  one.Signal(SIGCONT);
  ASSERT_TRUE(one.WaitForOutput(" left ", kLimit)) << one.output();
  ExpectRecovered(Stream(listen_, 300, [&] { spare.Signal(SIGKILL); }), expected);
}

TEST_F(WorkersTest, AnAnswerWaitsForAWorkerThatIsStartedAgain) {
  const auto coordinator = Coordinator(2);
  WorkerProcess first(join_, WorkerFlags({"--worker-name", "one"}));
  ASSERT_TRUE(coordinator->WaitUntilReady()) << coordinator->output() << first.output();
  const Answer expected = Ask(listen_, 300);
  std::unique_ptr<WorkerProcess> second;
  const StreamedAnswer streamed = Stream(listen_, 300, [&] {
    first.Signal(SIGKILL);
    ASSERT_TRUE(coordinator->WaitForOutput("a host for rank 1", kLimit)) << coordinator->output();
    EXPECT_THAT(Info().awaited(), HasSubstr("worker \"one\""));
    EXPECT_TRUE(testing::Eventually([&] { return Info().state() == v1::SERVER_STATE_UNHEALTHY; }));
    second = std::make_unique<WorkerProcess>(join_, WorkerFlags({"--worker-name", "one"}));
  });
  ExpectRecovered(streamed, expected);
  EXPECT_EQ(Info().state(), v1::SERVER_STATE_SERVING);
}

TEST_F(WorkersTest, AnAnswerGoesOnWithoutAKilledWorkerThatNobodyReplaces) {
  const auto coordinator = Coordinator(3, {"--replacement-timeout", "500ms", "--tolerate", "1"});
  WorkerProcess one(join_, WorkerFlags({"--worker-name", "one"}));
  WorkerProcess two(join_, WorkerFlags({"--worker-name", "two"}));
  ASSERT_TRUE(coordinator->WaitUntilReady())
      << coordinator->output() << one.output() << two.output();
  const Answer expected = Ask(listen_, 300);
  const StreamedAnswer streamed = Stream(listen_, 300, [&] { two.Signal(SIGKILL); });
  EXPECT_EQ(streamed.answer, expected);
  EXPECT_GE(streamed.recovered, 1);
  EXPECT_EQ(Info().state(), v1::SERVER_STATE_SERVING);
  EXPECT_THAT(Info().awaited(), HasSubstr("a host for rank 2"));
  const WorkerProcess three(join_, WorkerFlags({"--worker-name", "three"}));
  EXPECT_TRUE(testing::Eventually([&] { return Info().awaited().empty(); })) << three.output();
  EXPECT_EQ(Ask(listen_, 300), expected);
}

TEST_F(WorkersTest, PagesThatWorkersKeepComeBackThoughOneIsKilledOnTheWay) {
  kv_memory_ = "8MiB";
  const auto coordinator =
      Coordinator(4, {"--local-ranks", "2", "--kv-host", "64MiB", "--worker-silence", "20s"});
  const std::string metrics = absl::StrCat("127.0.0.1:", Number(*coordinator, "metrics_port="));
  WorkerProcess one(join_, WorkerFlags({"--worker-name", "one"}));
  WorkerProcess two(join_, WorkerFlags({"--worker-name", "two"}));
  ASSERT_TRUE(coordinator->WaitUntilReady())
      << coordinator->output() << one.output() << two.output();
  WorkerProcess spare(join_, WorkerFlags({"--worker-name", "spare"}));
  ASSERT_TRUE(spare.WaitForOutput(" connected ", kLimit)) << spare.output();
  const auto tier = [&metrics](const std::string& name) {
    return ScrapeSamples(metrics)[absl::StrCat("annulus_kv_tier_", name)];
  };
  const auto fill = [&] {
    FillMemory();
    EXPECT_TRUE(testing::Eventually([&] { return tier("waiting_pages{tier=\"host\"}") == 0; }));
  };
  const std::string read = "moved_bytes_total{tier=\"host\",way=\"read\"}";
  const Answer expected = AskOneProcess(4);
  EXPECT_EQ(Ask(listen_), expected);
  fill();
  EXPECT_EQ(tier(read), 0);
  EXPECT_EQ(Ask(listen_), expected);
  const double kept = tier("hits_total{tier=\"host\"}");
  EXPECT_GT(kept, 500) << "of more than 600 tokens";

  fill();
  const double pages = tier("pages{tier=\"host\"}");
  const double bytes = tier(read);
  two.Signal(SIGSTOP);  // it answers no copy, and is not lost yet
  auto late = std::async(std::launch::async, [this] { return Ask(listen_); });
  const double page_bytes = 16 * bytes / kept;
  EXPECT_TRUE(testing::Eventually([&] { return tier(read) >= bytes + 3 * page_bytes; }));
  two.Signal(SIGKILL);
  EXPECT_EQ(late.get(), expected);
  EXPECT_EQ(Info().awaited(), "");
  EXPECT_LT(tier("pages{tier=\"host\"}"), pages - 0.2 * pages) << "the pages of one rank of four";

  fill();
  const double before = tier("hits_total{tier=\"host\"}");
  EXPECT_EQ(Ask(listen_), expected);
  EXPECT_GE(tier("hits_total{tier=\"host\"}"), before + kept) << "saved anew";
  EXPECT_EQ(tier("up{tier=\"host\"}"), 1);
  EXPECT_EQ(tier("rejects_total{tier=\"host\"}"), 0);
  EXPECT_EQ(tier("mismatches_total{tier=\"host\"}"), 0);
  coordinator->Signal(SIGTERM);
  EXPECT_EQ(coordinator->WaitForExit(seconds(40)), 0) << coordinator->output();
}

TEST_F(WorkersTest, GarbageAtThePortDisturbsNoAnswer) {
  const auto coordinator = Coordinator(2);
  WorkerProcess worker(join_, WorkerFlags({}));
  ASSERT_TRUE(coordinator->WaitUntilReady()) << coordinator->output() << worker.output();
  const Answer before = Ask(coordinator->address());
  std::vector<std::unique_ptr<Http2Peer>> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(std::make_unique<Http2Peer>(join_, std::nullopt));
    Http2Peer peer(join_, std::nullopt);
    peer.Send(std::string(50'000, static_cast<char>(i)));
    Http2Peer browser(join_, std::nullopt);
    browser.Send("GET / HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(browser.WaitForClose(kLimit));
  }
  EXPECT_EQ(Ask(coordinator->address()), before);
}

}  // namespace
}  // namespace annulus::server
