#ifndef ANNULUS_TESTS_INTEGRATION_STRESS_CLIENT_H_
#define ANNULUS_TESTS_INTEGRATION_STRESS_CLIENT_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "bench/demo/document.h"

namespace annulus::server {

// What all clients of a stress run know.
struct StressWorld {
  std::string address;
  // A stored document, and others that may follow it in a prompt: what they share is its beginning.
  std::string name;
  bench::DemoDocument document;
  std::vector<std::string> followers;
  std::chrono::seconds limit{60};  // of calls that are meant to succeed
  int long_answer = 600;           // tokens of an answer that is read slowly
};

// One client: draws calls at random and judges how each ended. A call is lost when it has no status
// one second after its deadline, a status that nothing asked for, or a wrong answer.
class StressClient {
 public:
  StressClient(const StressWorld& world, int number, uint64_t seed);

  void Run(int requests);

  // "ask OK" -> how many.
  const std::map<std::string, int>& endings() const { return endings_; }
  const std::vector<std::string>& lost() const { return lost_; }

 private:
  // Kinds of calls.
  void Ask();         // for a planted fact, in a stream
  void Complete();    // a short text, in one message
  void BreakOff();    // cancels a long stream after some events
  void RunOut();      // a deadline that passes at a random time, or not
  void ReadSlowly();  // or not at all for a while
  void Vanish();      // the connection is reset, or closed in the middle of a call
  void Store();       // uploads a document of its own and deletes it
  void BreakUpload();
  void Misspell();  // asks for what is not allowed

  size_t Below(size_t bound);
  std::string Letters(size_t most);  // at least one, all the same
  void Pause(size_t milliseconds);
  v1::StreamGenerateRequest LongRequest(int max_tokens);
  using Clock = std::chrono::steady_clock;
  // `allowed`: codes that are no loss.
  void Judge(const std::string& kind, const grpc::Status& status, Clock::time_point deadline,
             const std::vector<grpc::StatusCode>& allowed);
  Clock::time_point SetDeadline(grpc::ClientContext& context, std::chrono::milliseconds limit);

  const StressWorld& world_;
  const int number_;
  std::mt19937_64 random_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::unique_ptr<v1::DocumentService::Stub> documents_;
  std::map<std::string, int> endings_;
  std::vector<std::string> lost_;
};

// Uploads in chunks; stops after `stop_after` bytes as if it had crashed.
grpc::Status UploadText(v1::DocumentService::Stub& stub, grpc::ClientContext& context,
                        const std::string& name, const std::string& text, size_t chunk,
                        size_t stop_after = SIZE_MAX);

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_INTEGRATION_STRESS_CLIENT_H_
