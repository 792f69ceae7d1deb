#ifndef ANNULUS_BENCH_SERVE_LOAD_H_
#define ANNULUS_BENCH_SERVE_LOAD_H_

#include <grpcpp/support/status.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "client/connection.h"

namespace annulus::bench {

// Arrival times of requests in [0, duration), in seconds: a Poisson process with `rate` arrivals
// per second. Deterministic in `seed`.
std::vector<double> ArrivalTimes(double rate, double duration, uint32_t seed);

struct LoadOptions {
  double rate = 1;              // requests per second, above 0
  double duration = 30;         // seconds during which requests arrive, above 0
  int32_t prompt_tokens = 512;  // per request: random ids that share no prefix with any other
  // If above prompt_tokens, lengths lie between the two: see PromptLengths.
  int32_t longest_prompt = 0;
  int32_t max_tokens = 32;
  int32_t vocabulary = 0;  // ids are drawn below this
  std::string model;       // may be empty if the server has only one
  uint32_t seed = 1;
  // Whether the daemon guesses tokens ahead. Greedy answers of random weights repeat themselves,
  // and guesses of those are right far more often than in anybody's text.
  bool speculation = false;
};

// Tokens of each of so many prompts. Between prompt_tokens and longest_prompt they are spread
// evenly on a logarithmic scale, in an order that follows the seed: so all traces of one size have
// the same work, and their load is known from one measurement. Lengths drawn at random would not
// do, because the few longest prompts are most of the work.
std::vector<int32_t> PromptLengths(const LoadOptions& options, size_t count);

// The outcome of one request. Latencies count from the time when it was due to arrive, so that a
// client or server that falls behind cannot hide it.
struct RequestOutcome {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string message;  // if the request failed
  int32_t prompt_tokens = 0;
  double first_token = 0;    // seconds; meaningful if tokens > 0
  double end = 0;            // seconds
  std::vector<double> gaps;  // seconds between consecutive deltas with tokens
  int64_t tokens = 0;        // of the answer
};

struct LoadResult {
  std::vector<RequestOutcome> outcomes;  // in order of arrival
  double seconds = 0;                    // from the start until the last request ends
};

// A greedy request for exactly `answer` tokens after `prompt` random ids.
v1::GenerationSpec RandomSpec(const LoadOptions& options, int32_t prompt, int32_t answer,
                              std::mt19937& random);

// Sends every request at its time, whether or not earlier ones have ended (open loop), and waits
// for all. Calls `progress` now and then with how many were sent and how many have ended.
// RESOURCE_EXHAUSTED if the system gives no more threads: each request in flight takes one.
absl::StatusOr<LoadResult> RunLoad(
    client::Connection& connection, const LoadOptions& options,
    const std::function<void(int64_t sent, int64_t ended)>& progress);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_SERVE_LOAD_H_
