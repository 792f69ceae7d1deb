#ifndef ANNULUS_TESTS_ENGINE_CORE_WINDOWED_MODEL_H_
#define ANNULUS_TESTS_ENGINE_CORE_WINDOWED_MODEL_H_

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

// EngineOptions::model of random weights in the shape of a model with windows, learned sinks and
// experts, whose config.json is written to `folder`.
inline std::string WindowedModel(const TempDirectory& folder) {
  std::ifstream file(TestFile("golden/gpt_oss/config.json"));
  nlohmann::json config = nlohmann::json::parse(file);
  config["vocab_size"] = 300;
  config.erase("quantization_config");
  folder.Write("config.json", config.dump());
  return "random:" + (folder.path() / "config.json").string();
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_CORE_WINDOWED_MODEL_H_
