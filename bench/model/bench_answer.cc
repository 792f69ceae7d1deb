#include "bench/model/bench_answer.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "bench/model/bench_sink.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {

absl::StatusOr<Answer> Generate(Engine& engine, RequestSpec spec, BenchProgress& progress,
                                const std::function<double(int64_t)>& operations_of) {
  constexpr std::chrono::milliseconds kProgressInterval{200};
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  const auto sink = std::make_shared<BenchSink>();
  ANNULUS_RETURN_IF_ERROR(engine.Submit(std::move(spec), sink).status());
  for (;;) {
    const std::optional<Completion> completion = sink->WaitFor(kProgressInterval);
    if (completion.has_value()) {
      ANNULUS_RETURN_IF_ERROR(completion->status);
      return Answer{*completion, sink->ids()};
    }
    const int64_t read = sink->processed();
    const double operations = operations_of == nullptr ? 0 : operations_of(read);
    progress.Show({operations > 0 ? read : 0, operations});
  }
}

}  // namespace annulus::bench
