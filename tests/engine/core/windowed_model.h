#ifndef ANNULUS_TESTS_ENGINE_CORE_WINDOWED_MODEL_H_
#define ANNULUS_TESTS_ENGINE_CORE_WINDOWED_MODEL_H_

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

// EngineOptions::model of random weights in the shape of a golden with windows, whose config.json
// is written to `folder`: gpt_oss has learned sinks and experts, too.
inline std::string WindowedModel(const TempDirectory& folder,
                                 const std::string& golden = "gpt_oss") {
  std::ifstream file(TestFile("golden/" + golden + "/config.json"));
  nlohmann::json config = nlohmann::json::parse(file);
  nlohmann::json& decoder = config.contains("text_config") ? config["text_config"] : config;
  for (const char* key : {"vocab_size", "vocab_size_per_layer_input"}) decoder[key] = 300;
  config.erase("quantization_config");
  folder.Write("config.json", config.dump());
  return "random:" + (folder.path() / "config.json").string();
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_CORE_WINDOWED_MODEL_H_
