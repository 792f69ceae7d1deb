#include "engine/gguf/gguf_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

// The `gguf` package's values, block by block and bit for bit (tests/engine/gguf/golden).
TEST(GgufTypesTest, WidensEveryQuantizedTypeToTheValuesOfTheReferencePackage) {
  std::ifstream file(testing::TestFile("engine/gguf/golden/blocks.json"));
  const nlohmann::json golden = nlohmann::json::parse(file);
  int seen = 0;
  for (uint32_t id = 0; id < 64; ++id) {
    const GgufType* const type = FindGgufType(id);
    if (type == nullptr || !type->served() || type->plain.has_value()) continue;
    ASSERT_TRUE(golden.contains(type->name)) << type->name;
    const nlohmann::json& of = golden[std::string(type->name)];
    const std::string blocks = absl::HexStringToBytes(of["blocks"].get<std::string>());
    const std::string bits = absl::HexStringToBytes(of["values"].get<std::string>());
    const auto count = static_cast<int64_t>(blocks.size() / type->bytes);
    ASSERT_EQ(bits.size(), static_cast<size_t>(count * type->block) * 4) << type->name;
    std::vector<float> values(static_cast<size_t>(count * type->block));
    type->widen(reinterpret_cast<const std::byte*>(blocks.data()), count, values.data());
    for (size_t i = 0; i < values.size(); ++i) {
      uint32_t expected = 0;
      for (int b = 0; b < 4; ++b) {
        expected = expected << 8 | static_cast<uint8_t>(bits[i * 4 + static_cast<size_t>(b)]);
      }
      float value;
      std::memcpy(&value, &expected, sizeof(value));
      ASSERT_EQ(values[i], value) << type->name << ", value " << i;
    }
    ++seen;
  }
  EXPECT_EQ(seen, static_cast<int>(golden.size()));
}

TEST(GgufTypesTest, KnowsTheSizesOfTypesThatItDoesNotServe) {
  const GgufType* const type = FindGgufType(23);
  ASSERT_NE(type, nullptr);
  EXPECT_EQ(type->name, "IQ4_XS");
  EXPECT_FALSE(type->served());
  EXPECT_EQ(FindGgufType(4), nullptr);
  EXPECT_EQ(FindGgufType(0xffffffff), nullptr);
  EXPECT_NE(ServedGgufTypes().find("Q4_1, "), std::string::npos);
}

}  // namespace
}  // namespace annulus
