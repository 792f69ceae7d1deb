// Renders templates for comparison with another implementation: reads lines of JSON objects with
// "template" and "variables", writes for each a line with "text" or "error".
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/text/template/chat_template.h"
#include "tests/engine/text/template/fixed_clock.h"

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto job = nlohmann::ordered_json::parse(line);
    const std::string variables = job.at("variables").dump();
    absl::StatusOr<std::string> text;
    const auto parsed = annulus::ChatTemplate::Parse(job.at("template").get<std::string>(), "line");
    if (parsed.ok()) {
      text = parsed->Render(variables, annulus::testing::FixedNow(), annulus::RenderLimits());
    } else {
      text = parsed.status();
    }
    nlohmann::json answer;
    if (text.ok()) {
      answer["text"] = *text;
    } else {
      answer["error"] = std::string(text.status().message());
    }
    std::cout << answer.dump() << "\n";
  }
  return 0;
}
