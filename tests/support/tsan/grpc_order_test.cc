// What grpc_order.cc says must be enough for a sound server and too little to hide a race. Each
// program is run as a child: the thread sanitizer has it exit with 66 where it has seen a race.

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/model.grpc.pb.h"

namespace annulus {
namespace {

constexpr int kClients = 4;
constexpr int kCalls = 100;  // of each, in a round

// A race shows only where two threads counted, and on one processor a whole round may pass on a
// single one of gRPC's threads: a race is looked for in so many rounds.
constexpr int kRaceRounds = 50;
std::atomic<bool> race_reported = false;

// Where a call counts itself.
enum class Place { kHandler, kOtherThread, kOnDone };

class Counter {
 public:
  explicit Counter(bool locked) : locked_(locked) {}

  void Add() {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (locked_) lock.lock();
    ++count_;
  }
  int count() const { return count_; }

 private:
  const bool locked_;
  std::mutex mutex_;
  int count_ = 0;
};

class CountingReactor final : public grpc::ServerUnaryReactor {
 public:
  CountingReactor(Counter& counter, Place place) : counter_(counter), place_(place) {
    if (place_ == Place::kHandler) counter_.Add();
    finisher_ = std::thread([this] {
      if (place_ == Place::kOtherThread) counter_.Add();
      touched_ = true;  // read by OnDone, which comes after Finish
      Finish(grpc::Status::OK);
    });
  }

  void OnDone() override {
    finisher_.join();
    if (place_ == Place::kOnDone && touched_) counter_.Add();
    delete this;
  }

 private:
  Counter& counter_;
  const Place place_;
  bool touched_ = false;
  std::thread finisher_;
};

class CountingService final
    : public v1::ModelService::WithRawCallbackMethod_ListModels<v1::ModelService::Service> {
 public:
  CountingService(Counter& counter, Place place) : counter_(counter), place_(place) {}

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* /*call*/,
                                       const grpc::ByteBuffer* /*request*/,
                                       grpc::ByteBuffer* response) override {
    const grpc::Slice empty;
    *response = grpc::ByteBuffer(&empty, 1);
    return new CountingReactor(counter_, place_);
  }

 private:
  Counter& counter_;
  const Place place_;
};

using Channel = std::shared_ptr<grpc::Channel>;

void CallCounting(const Channel& channel) {
  const auto stub = v1::ModelService::NewStub(channel);
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    if (!stub->ListModels(&context, {}, &response).ok()) std::_Exit(1);
  }
}

void CallUnknown(const Channel& channel) {
  grpc::GenericStub stub(channel);
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    const grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(&context, "/annulus.v1.None/None", request, &queue);
    call->StartCall();
    call->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    if (!queue.Next(&tag, &ok) || status.error_code() != grpc::UNIMPLEMENTED) std::_Exit(1);
  }
}

// Serves many calls side by side until every client has made its own.
void ServeClients(grpc::Service& service, void (*call)(const Channel&)) {
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back(call,
                         grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port),
                                                   grpc::InsecureChannelCredentials(), arguments));
  }
  for (std::thread& client : clients) client.join();
}

// Ends the program after many calls, with 2 where some were not counted.
[[noreturn]] void ServeLocked(Place place) {
  Counter counter(true);
  CountingService service(counter, place);
  ServeClients(service, CallCounting);
  std::exit(counter.count() == kClients * kCalls ? 0 : 2);
}

// Ends the program when a race was seen, or after kRaceRounds without one.
[[noreturn]] void ServeUnlocked(Place place) {
  Counter counter(false);
  CountingService service(counter, place);
  for (int i = 0; i < kRaceRounds && !race_reported; ++i) ServeClients(service, CallCounting);
  std::exit(0);  // the sanitizer makes 66 of it where it has reported
}

[[noreturn]] void ServeNobody() {
  Counter counter(true);
  CountingService service(counter, Place::kHandler);
  ServeClients(service, CallUnknown);
  std::exit(counter.count());
}

class GrpcOrderTest : public ::testing::TestWithParam<Place> {
 protected:
  GrpcOrderTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_P(GrpcOrderTest, CallsThatTakeALockAreClean) {
  EXPECT_EXIT(ServeLocked(GetParam()), ::testing::ExitedWithCode(0), "^$");
}

TEST_P(GrpcOrderTest, ARaceBetweenCallsIsSeen) {
  EXPECT_EXIT(ServeUnlocked(GetParam()), ::testing::ExitedWithCode(66),
              "SUMMARY.*data race .*in .*Add");
}

TEST_F(GrpcOrderTest, MethodsThatNobodyServesAreClean) {
  EXPECT_EXIT(ServeNobody(), ::testing::ExitedWithCode(0), "^$");
}

INSTANTIATE_TEST_SUITE_P(Places, GrpcOrderTest,
                         ::testing::Values(Place::kHandler, Place::kOtherThread, Place::kOnDone));

}  // namespace
}  // namespace annulus

// The sanitizer calls this with every report.
extern "C" void __tsan_on_report(void* /*report*/) { annulus::race_reported = true; }
