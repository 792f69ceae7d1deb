#ifndef ANNULUS_BENCH_QUALITY_NEEDLES_H_
#define ANNULUS_BENCH_QUALITY_NEEDLES_H_

// Facts that are planted in a text and then asked for: shows what a saving costs in answers.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"

namespace annulus::bench {

struct Needle {
  std::string cue;       // the sentence up to the answer
  std::string answer;    // a made-up name or number; the sentence ends with it
  std::string question;  // the question that the sentence answers

  std::string sentence() const { return cue + answer + "."; }
};

inline constexpr int kMostNeedles = 100;

// `count` facts of several kinds, at most kMostNeedles, about different places. Deterministic in
// `seed` on every machine.
std::vector<Needle> MakeNeedles(int count, uint64_t seed);

// Returns `text` with the needles' sentences planted, each on a line of its own. Needle i goes
// after the line or the sentence at (i + 0.5) / needles.size() of the text.
std::string PlantNeedles(absl::string_view text, std::span<const Needle> needles);

// Asks the model about each needle in `text`, one question at a time, greedily, and counts the
// right answers: those that contain the needle's answer. Uses the model's chat template with the
// text as a document; without a template, the plain frame's question; for a model that only
// continues texts, the cue. OUT_OF_RANGE if the text is longer than the context or than the memory
// for keys and values; other errors are those of the request.
absl::StatusOr<int> CountAnswered(Engine& engine, absl::string_view text,
                                  std::span<const Needle> needles);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_QUALITY_NEEDLES_H_
