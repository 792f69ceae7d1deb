#ifndef ANNULUS_TESTS_SUPPORT_SMALL_MODEL_H_
#define ANNULUS_TESTS_SUPPORT_SMALL_MODEL_H_

#include <filesystem>
#include <optional>

namespace annulus::testing {

// The small language model of the quickstart, SmolLM2-135M-Instruct as a GGUF file of 98 MB, in the
// build's folder models/. deploy/fetch_model.sh brings it at the first call if it is not there yet;
// several processes may call at once. Nothing if it cannot be had here: the caller then skips with
// GTEST_SKIP. A file that comes damaged fails the test.
std::optional<std::filesystem::path> SmallModel();

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_SMALL_MODEL_H_
