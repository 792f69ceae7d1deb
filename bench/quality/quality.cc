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

// So many rows are compared at a time. Their logits are kept of the reference and of one other:
// twice 50 MB with a vocabulary of 49,152, and of the reference the probabilities too, 200 MB.
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

// Reads a piece with a compared model and adds what it says of the tokens that follow, `next`.
absl::Status AddPiece(LoneReader& reader, std::span<const int32_t> piece,
                      std::span<const ExpectedToken> expected, std::span<const int32_t> next,
                      Quality& quality) {
  ANNULUS_ASSIGN_OR_RETURN(const RankResult result, Read(reader, piece, quality.seconds));
  for (size_t row = 0; row < expected.size(); ++row) {
    quality.next.Add(expected[row], result.logits[row].logits, next[row]);
  }
  for (const LayerAttention& layer : result.attention) {
    quality.pairs += layer.pairs;
    for (const double covered : layer.covered) quality.covered += covered;
    quality.covered_rows += layer.probes * static_cast<double>(layer.covered.size());
  }
  return absl::OkStatus();
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

absl::StatusOr<std::vector<Quality>> CompareQuality(const QualityModel& reference,
                                                    std::span<const QualityModel> compared,
                                                    Backend& backend, int threads,
                                                    std::span<const int32_t> tokens,
                                                    const std::function<void(int64_t)>& read) {
  if (tokens.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", tokens.size(), " tokens has no next token: at least 2"));
  }
  const int64_t length = std::ssize(tokens);
  ANNULUS_ASSIGN_OR_RETURN(const auto first, Open(reference, backend, threads, length));
  std::vector<std::unique_ptr<LoneReader>> readers;
  for (const QualityModel& model : compared) {
    ANNULUS_ASSIGN_OR_RETURN(readers.emplace_back(), Open(model, backend, threads, length));
  }
  std::vector<Quality> all(compared.size());
  double reference_seconds = 0;
  for (size_t begin = 0; begin < tokens.size(); begin += kRows) {
    const auto piece = tokens.subspan(begin, std::min(kRows, tokens.size() - begin));
    ANNULUS_ASSIGN_OR_RETURN(const RankResult result, Read(*first, piece, reference_seconds));
    // The last token of the text is followed by none.
    const size_t followed = std::min(piece.size(), tokens.size() - 1 - begin);
    std::vector<ExpectedToken> expected;
    for (size_t row = 0; row < followed; ++row) expected.emplace_back(result.logits[row].logits);
    for (size_t model = 0; model < compared.size(); ++model) {
      ANNULUS_RETURN_IF_ERROR(
          AddPiece(*readers[model], piece, expected, tokens.subspan(begin + 1), all[model]));
    }
    read(static_cast<int64_t>(begin + piece.size()));
  }
  for (Quality& quality : all) quality.reference_seconds = reference_seconds;
  return all;
}

}  // namespace annulus::bench
