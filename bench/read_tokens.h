#ifndef ANNULUS_BENCH_READ_TOKENS_H_
#define ANNULUS_BENCH_READ_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/tokenizer.h"

namespace annulus::bench {

// Returns the first `most` tokens of a text file, including leading special tokens. NOT_FOUND if it
// cannot be read; INVALID_ARGUMENT if it is not UTF-8.
absl::StatusOr<std::vector<int32_t>> ReadTokens(const std::string& path, const Tokenizer& tokenizer,
                                                int most);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_READ_TOKENS_H_
