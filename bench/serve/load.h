#ifndef ANNULUS_BENCH_SERVE_LOAD_H_
#define ANNULUS_BENCH_SERVE_LOAD_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "client/connection.h"

namespace annulus {

// Times at which requests arrive in [0, duration), seconds: a Poisson process of `rate` per second.
// The same for the same seed.
std::vector<double> ArrivalTimes(double rate, double duration, uint32_t seed);

struct LoadOptions {
  double rate = 1;              // requests per second, above 0
  double duration = 30;         // seconds in which requests arrive, above 0
  int32_t prompt_tokens = 512;  // of each, random ids that share no prefix with another's
  // If above prompt_tokens: lengths are drawn between the two, evenly on a logarithmic scale.
  int32_t longest_prompt = 0;
  int32_t max_tokens = 32;
  int32_t vocabulary = 0;  // ids are drawn below it
  std::string model;       // empty: the server's only one
  uint32_t seed = 1;
};

// One request. Latencies count from the time it was due to arrive, so that a client or a server
// that falls behind cannot hide it.
struct RequestOutcome {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string message;  // of a failure
  int32_t prompt_tokens = 0;
  double first_token = 0;    // seconds; meaningful where tokens > 0
  double end = 0;            // seconds
  std::vector<double> gaps;  // seconds between one delta with tokens and the next
  int64_t tokens = 0;        // of the answer
};

struct LoadResult {
  std::vector<RequestOutcome> outcomes;  // in order of arrival
  double seconds = 0;                    // from the start to the end of the last request
};

// A greedy request for exactly `answer` tokens after `prompt` random ids.
v1::GenerationSpec RandomSpec(const LoadOptions& options, int32_t prompt, int32_t answer,
                              std::mt19937& random);

// Sends every request at its time, whatever has become of those before (open loop), and waits for
// all. `progress` hears now and then how many have been sent and how many have ended.
// RESOURCE_EXHAUSTED where the system gives no more threads: one request in flight is one thread.
absl::StatusOr<LoadResult> RunLoad(
    Connection& connection, const LoadOptions& options,
    const std::function<void(int64_t sent, int64_t ended)>& progress);

}  // namespace annulus

#endif  // ANNULUS_BENCH_SERVE_LOAD_H_
