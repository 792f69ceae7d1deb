#ifndef ANNULUS_TESTS_SERVER_GENERATION_SINK_FIXTURE_H_
#define ANNULUS_TESTS_SERVER_GENERATION_SINK_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/generation/bounded_sink.h"

namespace annulus::server {

// Sinks that nobody reads but the test, and numbered deltas.
class SinkFixture : public ::testing::Test {
 protected:
  static constexpr size_t kDeltaBytes = 1000;

  std::shared_ptr<BoundedSink> NewSink() {
    return std::make_shared<BoundedSink>(SinkLimits{.max_bytes = 4 * kDeltaBytes}, delivery_,
                                         reader_);
  }
  static Delta Number(int number) {
    Delta delta;
    delta.text = absl::StrCat(number, std::string(kDeltaBytes, '.'));
    return delta;
  }
  // What the sink has, and what it gets by that. `generation` has Refill.
  template <typename Generation>
  static std::vector<SinkEvent> ReadAll(Generation& generation,
                                        const std::shared_ptr<BoundedSink>& sink) {
    std::vector<SinkEvent> events;
    while (std::optional<SinkEvent> event = sink->Pop()) {
      events.push_back(*std::move(event));
      generation.Refill(*sink);
    }
    return events;
  }

 private:
  class NoReader final : public SinkReader {
   public:
    void OnReady() override {}
  };

  NoReader reader_;
  DeliveryThread delivery_;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_GENERATION_SINK_FIXTURE_H_
