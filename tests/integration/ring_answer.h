#ifndef ANNULUS_TESTS_INTEGRATION_RING_ANSWER_H_
#define ANNULUS_TESTS_INTEGRATION_RING_ANSWER_H_

#include <grpcpp/channel.h>
#include <grpcpp/support/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "annulus/v1/inference.pb.h"

namespace annulus::server {

// What a client must not be able to tell from an answer of a ring in one process.
struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::string digest;
  bool operator==(const Answer&) const = default;
};

// Whoever asks for one with this spec gets all that Answer holds.
void AskForAllOfAnswer(v1::GenerationSpec& spec);

// To a daemon without TLS.
std::shared_ptr<grpc::Channel> PlainChannel(const std::string& address);

// The answer of the daemon at the other end; the test fails if there is none.
Answer AskFor(const std::shared_ptr<grpc::Channel>& channel, const v1::GenerationSpec& spec);

// An answer as a stream.
struct StreamedAnswer {
  Answer answer;
  int64_t recovered = 0;
  int64_t repaired = 0;
  std::vector<std::chrono::steady_clock::time_point> times;  // when tokens came
  grpc::Status status;

  // The longest time without a token from `since` on, in seconds.
  double LongestPause(std::chrono::steady_clock::time_point since) const;
};

// Reads to its end, for two minutes at most. `on_tokens`: called with how many tokens there are,
// whenever some have come.
StreamedAnswer StreamAnswer(const std::shared_ptr<grpc::Channel>& channel,
                            const v1::GenerationSpec& spec,
                            const std::function<void(size_t)>& on_tokens);

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_INTEGRATION_RING_ANSWER_H_
