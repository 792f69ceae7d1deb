#ifndef ANNULUS_BENCH_QUALITY_NEEDLES_H_
#define ANNULUS_BENCH_QUALITY_NEEDLES_H_

// Facts that are planted in a text and asked for: what a saving costs in answers.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"

namespace annulus {

struct Needle {
  std::string cue;       // the sentence up to the answer
  std::string answer;    // a made-up name, with which the sentence ends
  std::string question;  // that the sentence answers

  std::string sentence() const { return cue + answer + "."; }
};

inline constexpr int kMostNeedles = 100;

// `count` facts, at most kMostNeedles, about different places; the same on every machine for the
// same seed.
std::vector<Needle> MakeNeedles(int count, uint64_t seed);

// `text` with the sentence of needle i on a line of its own, behind the line or the sentence that
// (i + 0.5) / needles.size() of the text falls into.
std::string PlantNeedles(absl::string_view text, std::span<const Needle> needles);

// How many of the needles the model tells when it is asked about `text`, one question at a time,
// greedily: in its chat template with the text as a document; as the plain frame asks if it has no
// template; by the cue if it only continues texts. An answer is right if it holds the needle's
// answer. OUT_OF_RANGE: the text is longer than the context or than the memory for keys and values;
// other errors are those of the request.
absl::StatusOr<int> CountAnswered(Engine& engine, absl::string_view text,
                                  std::span<const Needle> needles);

}  // namespace annulus

#endif  // ANNULUS_BENCH_QUALITY_NEEDLES_H_
