#include "bench/serve/crowd.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/report/statistics.h"
#include "client/cancellation.h"
#include "client/failure.h"
#include "client/generation.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// How far a prompt of the crowd is. Thread-safe.
class CrowdPrompt final : public client::GenerationObserver {
 public:
  void OnQueued(const v1::Queued&) override { arrived_ = true; }
  void OnProgress(const v1::PromptProgress&) override { arrived_ = true; }
  void OnDelta(const v1::Delta& delta) override {
    arrived_ = true;
    if (delta.token_ids_size() > 0) read_ = true;
  }
  void End(const grpc::Status& status) {
    if (!status.ok()) refusal_ = status;
    ended_ = true;
  }

  bool arrived() const { return arrived_ || ended_; }
  bool read() const { return read_; }
  bool ended() const { return ended_; }
  // Why it failed; OK while it has not. Read it once it has ended.
  const grpc::Status& refusal() const { return refusal_; }

 private:
  std::atomic<bool> arrived_{false};
  std::atomic<bool> read_{false};
  std::atomic<bool> ended_{false};
  grpc::Status refusal_;
};

// The prompts, each on a thread of its own. The destructor cancels those that have not ended.
class Crowd {
 public:
  Crowd(client::Connection& connection, client::Cancellation& cancellation)
      : connection_(connection), cancellation_(cancellation) {}
  ~Crowd() {
    cancellation_.Cancel();
    for (std::thread& thread : threads_) thread.join();
  }

  absl::Status Send(const CrowdOptions& options) {
    std::mt19937 random(options.load.seed + 2);
    for (int32_t i = 0; i < options.prompts; ++i) {
      prompts_.push_back(std::make_unique<CrowdPrompt>());
      try {
        threads_.emplace_back([this, prompt = prompts_.back().get(),
                               spec = RandomSpec(options.load, options.prompt_tokens, 1, random)] {
          prompt->End(client::StreamGenerate(connection_, spec, *prompt).status);
        });
      } catch (const std::system_error& error) {
        prompts_.pop_back();
        return absl::ResourceExhaustedError(absl::StrCat("cannot start a thread for prompt ", i + 1,
                                                         ": ", error.what(), "; lower --crowd"));
      }
    }
    return absl::OkStatus();
  }

  template <typename Has>
  int64_t Count(const Has& has) const {
    return std::count_if(prompts_.begin(), prompts_.end(),
                         [&](const auto& prompt) { return has(*prompt); });
  }
  int64_t arrived() const {
    return Count([](const CrowdPrompt& prompt) { return prompt.arrived(); });
  }
  int64_t read() const {
    return Count([](const CrowdPrompt& prompt) { return prompt.read(); });
  }
  int64_t ended() const {
    return Count([](const CrowdPrompt& prompt) { return prompt.ended(); });
  }
  // Of those that have ended so far.
  int64_t refused() const {
    return Count([](const CrowdPrompt& prompt) { return IsRefused(prompt); });
  }
  // Why the first one was refused.
  std::string WhyRefused() const {
    const auto first = std::find_if(prompts_.begin(), prompts_.end(),
                                    [](const auto& prompt) { return IsRefused(*prompt); });
    return first == prompts_.end()
               ? ""
               : client::DescribeFailure((*first)->refusal(), connection_.server());
  }

 private:
  static bool IsRefused(const CrowdPrompt& prompt) {
    return prompt.ended() && !prompt.refusal().ok();
  }

  client::Connection& connection_;
  client::Cancellation& cancellation_;
  std::vector<std::unique_ptr<CrowdPrompt>> prompts_;
  std::vector<std::thread> threads_;
};

Row FirstTokens(const char* measured, const CrowdOptions& options, const LoadResult& result) {
  std::vector<double> seconds;
  for (const RequestOutcome& outcome : result.outcomes) {
    if (outcome.code == grpc::StatusCode::OK && outcome.tokens > 0) {
      seconds.push_back(outcome.first_token);
    }
  }
  Row row;
  row.Text("measured", measured).Int("tokens", options.load.prompt_tokens);
  row.Int("count", std::ssize(seconds));
  row.Int("failed", std::ssize(result.outcomes) - std::ssize(seconds));
  for (const auto& [label, share] :
       {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}, std::pair{"max", 1.0}}) {
    row.Number(label, Percentile(seconds, share), Row::Unit::kSeconds);
  }
  return row;
}

}  // namespace

absl::StatusOr<CrowdResult> RunCrowd(const client::ConnectionOptions& connection,
                                     const CrowdOptions& options,
                                     const std::function<void(const std::string&)>& progress) {
  client::Cancellation of_load;
  client::Cancellation of_crowd;
  client::ConnectionOptions crowds = connection;
  crowds.timeout.reset();
  if (!options.token.empty()) crowds.token = options.token;
  ANNULUS_ASSIGN_OR_RETURN(const auto open, client::Connection::Open(connection, of_load));
  ANNULUS_ASSIGN_OR_RETURN(const auto crowding, client::Connection::Open(crowds, of_crowd));
  CrowdResult result;
  const auto run = [&](const char* what, uint32_t seed) {
    LoadOptions load = options.load;
    load.seed = seed;  // other prompts each time: nothing is cached
    return RunLoad(*open, load, [&](int64_t sent, int64_t ended) {
      progress(absl::StrCat("short requests ", what, ": ", sent, " sent, ", ended, " ended"));
    });
  };
  ANNULUS_ASSIGN_OR_RETURN(result.alone, run("alone", options.load.seed));

  Crowd crowd(*crowding, of_crowd);
  ANNULUS_RETURN_IF_ERROR(crowd.Send(options));
  const auto last = std::chrono::steady_clock::now() + kCrowdWait;
  while (crowd.arrived() < options.prompts) {
    if (std::chrono::steady_clock::now() > last) {
      return absl::UnavailableError(
          absl::StrCat("of the crowd's ", options.prompts, " prompts the server has taken ",
                       crowd.arrived(), " within ", kCrowdWait.count(), " s; lower --crowd"));
    }
    progress(absl::StrCat("the crowd: ", crowd.arrived(), " prompts have arrived"));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  progress("the crowd: all prompts have arrived");
  ANNULUS_ASSIGN_OR_RETURN(result.beside, run("beside the crowd", options.load.seed + 1));
  result.read = crowd.read();
  result.refused = crowd.refused();
  if (result.alone.outcomes.empty() || result.beside.outcomes.empty()) {
    return absl::InvalidArgumentError(
        "no request arrived in --duration; raise --duration or --rate");
  }
  if (crowd.ended() < options.prompts) return result;
  return absl::InvalidArgumentError(
      absl::StrCat("of the crowd's ", options.prompts, " prompts ", result.read, " were read and ",
                   result.refused,
                   " were refused before the last short request ended; raise --crowd or "
                   "--crowd-prompt, or lower --duration",
                   result.refused > 0 ? ". The first refusal: " : "", crowd.WhyRefused()));
}

std::vector<Row> CrowdRows(const CrowdOptions& options, const CrowdResult& result) {
  Row crowd;
  crowd.Text("measured", "crowd").Int("prompts", options.prompts);
  crowd.Int("tokens", options.prompt_tokens).Int("read", result.read);
  crowd.Int("refused", result.refused);
  return {FirstTokens("time_to_first_token_alone", options, result.alone),
          FirstTokens("time_to_first_token_beside_crowd", options, result.beside),
          std::move(crowd)};
}

}  // namespace annulus::bench
