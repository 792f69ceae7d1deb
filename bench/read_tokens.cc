#include "bench/read_tokens.h"

#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {

absl::StatusOr<std::vector<int32_t>> ReadTokens(const std::string& path, const Tokenizer& tokenizer,
                                                int most) {
  std::ifstream file(path, std::ios::binary);
  if (!file.good()) return absl::NotFoundError(absl::StrCat(path, " cannot be read"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  ANNULUS_ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer.Encode(text, true));
  if (static_cast<int>(ids.size()) > most) ids.resize(static_cast<size_t>(most));
  return ids;
}

}  // namespace annulus::bench
