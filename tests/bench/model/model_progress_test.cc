// What annulus-bench model shows on a terminal.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/client/cli/terminal_process.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::bench {
namespace {

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1,
    "num_attention_heads": 1, "num_key_value_heads": 1, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "max_position_embeddings": 4096, "torch_dtype": "bfloat16"})";

// Runs annulus-bench model on a terminal. Checks that it never shows more done than there is, and
// returns the last such pair.
std::pair<int, int> LastShown(const testing::TempDirectory& folder,
                              const std::vector<std::string>& options) {
  folder.Write("config.json", kConfig);
  std::vector<std::string> command = {testing::BuildFolder() / "annulus-bench", "model", "--random",
                                      folder.path() / "config.json"};
  command.insert(command.end(), options.begin(), options.end());
  testing::TerminalProcess bench(command);
  std::string shown;
  EXPECT_EQ(bench.Wait(&shown), 0) << shown;
  std::pair<int, int> last;
  for (const absl::string_view word : absl::StrSplit(shown, ' ')) {  // "300/336"
    const std::vector<absl::string_view> pair = absl::StrSplit(word, '/');
    int done = 0;
    int all = 0;
    if (pair.size() != 2 || !absl::SimpleAtoi(pair[0], &done) || !absl::SimpleAtoi(pair[1], &all)) {
      continue;
    }
    last = {done, all};
    EXPECT_LE(done, all) << shown;
  }
  return last;
}

// The file holds three times as many ids as --generate says.
TEST(ModelProgress, CountsForcedTokens) {
  const testing::TempDirectory folder;
  folder.Write("ids.txt", "1 2 3 4 5 6 7 8 9 10 11 12");
  const auto last = LastShown(folder, {"--depth", "300", "--generate", "4", "--force-tokens",
                                       folder.path() / "ids.txt", "--repeat", "3"});
  EXPECT_EQ(last, std::pair(300 + 3 * 12, 300 + 3 * 12));
}

TEST(ModelProgress, CountsTheTokensOfAllStreams) {
  const testing::TempDirectory folder;
  const auto last =
      LastShown(folder, {"--depth", "300", "--generate", "4", "--streams", "3", "--repeat", "2"});
  const int tokens = 3 * 300 + 4 * (3 + 2 * 3);  // each alone, then twice together
  EXPECT_EQ(last, std::pair(tokens, tokens));
}

}  // namespace
}  // namespace annulus::bench
