#include "bench/model/forced_decode.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "bench/model/bench_answer.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr Speculation kWithoutAndWith[] = {Speculation::kOff, Speculation::kNgram};

}  // namespace

absl::StatusOr<std::array<Row, 2>> ForcedDecode(Engine& engine, const ForcedAnswer& forced,
                                                const ForcedDecodeOptions& options,
                                                const std::function<void(Row&)>& name_ranks,
                                                BenchProgress& progress) {
  const auto tokens = static_cast<int32_t>(forced.answer.size());
  std::array<std::vector<double>, 2> seconds;
  Usage usage;
  for (int i = 0; i < options.repeat; ++i) {
    for (const Speculation speculation : kWithoutAndWith) {
      RequestSpec spec;
      spec.prompt = forced.prompt;
      spec.sampling.max_tokens = tokens;
      spec.speculation = speculation;
      ANNULUS_ASSIGN_OR_RETURN(const Answer answer, Generate(engine, std::move(spec), progress));
      if (answer.ids != forced.answer) {
        return absl::InternalError(
            "the engine answered with other tokens than those of --force-tokens");
      }
      seconds[static_cast<size_t>(speculation)].push_back(answer.completion.timings.decode);
      if (speculation == Speculation::kNgram) usage = answer.completion.usage;
    }
    progress.Done({tokens, options.operations});
  }
  const double plain = Median(seconds[0]);
  std::array<Row, 2> rows;
  for (const Speculation speculation : kWithoutAndWith) {
    const bool guesses = speculation == Speculation::kNgram;
    const double median = Median(seconds[static_cast<size_t>(speculation)]);
    Row& row = rows[static_cast<size_t>(speculation)];
    row.Text("phase", guesses ? "decode, guessing" : "decode").Int("tokens", tokens);
    row.Int("depth", options.depth);
    name_ranks(row);
    row.Number("seconds", median, Row::Unit::kSeconds);
    row.Number("tokens_per_second", (tokens - 1) / median, Row::Unit::kPerSecond);
    if (guesses) {
      row.Number("ratio_to_plain", median / plain);
      row.Int("drafted", usage.drafted_tokens).Int("accepted", usage.accepted_tokens);
    }
  }
  return rows;
}

}  // namespace annulus::bench
