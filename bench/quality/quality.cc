#include "bench/quality/quality.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "bench/model/lone_reader.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// Logits of so many rows are kept of both: 2 * 50 MB with a vocabulary of 49,152.
constexpr size_t kRows = 256;

absl::StatusOr<std::unique_ptr<LoneReader>> Open(const QualityModel& model, Backend& backend,
                                                 int threads, int64_t tokens) {
  LoneReader::Options options;
  options.threads = threads;
  options.longest = tokens;
  options.attention = model.attention;
  ANNULUS_ASSIGN_OR_RETURN(auto reader, LoneReader::Create(model.model, backend, options));
  ANNULUS_RETURN_IF_ERROR(reader->Begin(tokens));
  return reader;
}

// Reads a piece, and adds the seconds that it took.
absl::StatusOr<RankResult> Read(LoneReader& reader, std::span<const int32_t> piece,
                                double& seconds) {
  const auto begin = std::chrono::steady_clock::now();
  absl::StatusOr<RankResult> result = reader.Read(piece, /*logits=*/true);
  seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (result.ok()) ANNULUS_RETURN_IF_ERROR(result->status);
  return result;
}

}  // namespace

void Quality::Add(const Quality& more) {
  next.Add(more.next);
  pairs += more.pairs;
  covered += more.covered;
  covered_rows += more.covered_rows;
  reference_seconds += more.reference_seconds;
  seconds += more.seconds;
}

absl::StatusOr<Quality> CompareQuality(const QualityModel& reference, const QualityModel& compared,
                                       Backend& backend, int threads,
                                       std::span<const int32_t> tokens,
                                       const std::function<void(int64_t)>& read) {
  if (tokens.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", tokens.size(), " tokens has no next token: at least 2"));
  }
  const int64_t length = std::ssize(tokens);
  ANNULUS_ASSIGN_OR_RETURN(const auto first, Open(reference, backend, threads, length));
  ANNULUS_ASSIGN_OR_RETURN(const auto second, Open(compared, backend, threads, length));
  Quality quality;
  for (size_t begin = 0; begin < tokens.size(); begin += kRows) {
    const auto piece = tokens.subspan(begin, std::min(kRows, tokens.size() - begin));
    ANNULUS_ASSIGN_OR_RETURN(const RankResult expected,
                             Read(*first, piece, quality.reference_seconds));
    ANNULUS_ASSIGN_OR_RETURN(const RankResult result, Read(*second, piece, quality.seconds));
    for (size_t row = 0; row < piece.size() && begin + row + 1 < tokens.size(); ++row) {
      quality.next.Add(expected.logits[row].logits, result.logits[row].logits,
                       tokens[begin + row + 1]);
    }
    for (const LayerAttention& layer : result.attention) {
      quality.pairs += layer.pairs;
      for (const double covered : layer.covered) quality.covered += covered;
      quality.covered_rows += layer.probes * static_cast<double>(layer.covered.size());
    }
    read(static_cast<int64_t>(begin + piece.size()));
  }
  return quality;
}

}  // namespace annulus::bench
