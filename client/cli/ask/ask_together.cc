#include "client/cli/ask/ask_together.h"

#include <chrono>
#include <utility>

#include "client/cli/ask/answer.h"
#include "client/failure.h"
#include "client/many_generations.h"

namespace annulus::client {
namespace {

// Whether the question may succeed if it is asked again, by itself.
bool MayGoWellLater(const grpc::Status& status) {
  return RetryDelay(status).has_value() || status.error_code() == grpc::StatusCode::UNAVAILABLE;
}

class Together final : public ManyObserver {
 public:
  Together(Session& session, size_t count, const std::function<bool(Asked)>& take)
      : session_(session), take_(take), taken_(count, false) {}

  void OnQueued(const v1::Queued& queued) override {
    served_ = true;
    if (!answers_) ShowWaiting(session_, queued);
  }
  void OnProgress(const v1::PromptProgress& progress) override {
    served_ = true;
    if (!answers_) ShowReading(session_, progress);
  }
  void OnDelta(const v1::Delta& /*delta*/) override {
    served_ = true;
    if (!std::exchange(answers_, true)) Show();
  }
  bool OnEnd(size_t index, Generation generation) override {
    if (!generation.status.ok() && MayGoWellLater(generation.status)) return true;
    return Take(index, std::move(generation));
  }

  // Call this when the call has ended with `status`.
  AskedTogether Finish(const grpc::Status& status) {
    session_.progress().Clear();
    AskedTogether all;
    all.served = served_;
    const bool later = status.ok() || status.error_code() == grpc::StatusCode::UNIMPLEMENTED ||
                       status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED ||
                       (served_ && status.error_code() == grpc::StatusCode::UNAVAILABLE);
    if (session_.interrupted()) {
      all.status = {grpc::StatusCode::CANCELLED, "interrupted"};
      return all;
    }
    if (!later && IsForAll(status)) {
      all.status = status;
      return all;
    }
    for (size_t i = 0; i < taken_.size() && !unwanted_; ++i) {
      if (taken_[i]) continue;
      if (later) {
        all.left.push_back(i);
      } else {
        Generation failed;
        failed.status = status;
        Take(i, std::move(failed));
      }
    }
    return all;
  }

 private:
  bool Take(size_t index, Generation generation) {
    taken_[index] = true;
    ++ended_;
    unwanted_ = !take_({index, std::move(generation)});
    if (!unwanted_) Show();
    return !unwanted_;
  }

  void Show() {
    ProgressSample sample;
    sample.phase = "Answering";
    sample.unit = ProgressSample::Unit::kItems;
    sample.done = ended_;
    sample.total = static_cast<int64_t>(taken_.size());
    sample.elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    session_.progress().Show(sample);
  }

  Session& session_;
  const std::function<bool(Asked)>& take_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<bool> taken_;  // by question: whether `take_` was called
  int64_t ended_ = 0;
  bool served_ = false;
  bool answers_ = false;   // an answer has begun
  bool unwanted_ = false;  // `take_` has returned false
};

}  // namespace

AskedTogether AskTogether(Session& session, const v1::GenerationSpec& shared,
                          const std::vector<std::string>& questions,
                          const std::function<bool(Asked)>& take) {
  Together together(session, questions.size(), take);
  if (session.options().connection.timeout.has_value()) return together.Finish(grpc::Status::OK);
  v1::AskManyRequest request;
  *request.mutable_spec() = shared;
  request.mutable_questions()->Add(questions.begin(), questions.end());
  return together.Finish(StreamMany(session.connection(), request, together));
}

}  // namespace annulus::client
