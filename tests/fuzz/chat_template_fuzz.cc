// A chat template of any text, rendered with any variables: those behind the first zero byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "engine/text/template/chat_template.h"
#include "tests/engine/text/template/fixed_clock.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const auto parsed = annulus::ChatTemplate::Parse(input.substr(0, end), "fuzz.jinja");
  if (!parsed.ok()) return 0;
  annulus::RenderLimits limits;
  limits.steps = 200'000;
  limits.output_bytes = size_t{1} << 20;
  const absl::string_view variables = end == input.npos ? "{}" : input.substr(end + 1);
  const auto text = parsed->Render(variables, annulus::testing::FixedNow(), limits);
  if (text.ok() && text->size() > limits.output_bytes) abort();
  return 0;
}
