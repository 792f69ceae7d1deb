#include "client/format/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace annulus::client {
namespace {

TEST(JsonWriter, NestsAndSeparates) {
  JsonWriter json;
  json.BeginObject();
  json.Key("a").BeginArray().Int(1).Int(-2).BeginObject().EndObject().BeginArray().EndArray();
  json.EndArray();
  json.Key("b").Bool(true).Key("c").Bool(false).Key("d").Null().Key("e").String("x");
  json.EndObject();
  EXPECT_EQ(json.text(), R"({"a":[1,-2,{},[]],"b":true,"c":false,"d":null,"e":"x"})");
}

TEST(JsonWriter, EscapesStringsAndKeys) {
  JsonWriter json;
  json.BeginObject();
  json.Key("\"\\").String("line\nbreak\ttab\x01\x7f é 漢 🙂");
  json.EndObject();
  EXPECT_EQ(json.text(), "{\"\\\"\\\\\":\"line\\nbreak\\u0009tab\\u0001\\u007f é 漢 🙂\"}");
}

TEST(JsonWriter, WritesNumbersThatReadBackTheSame) {
  JsonWriter json;
  json.BeginArray();
  json.Double(0.1).Double(-1e300).Double(3).Int(std::numeric_limits<int64_t>::min());
  json.Double(std::nan("")).Double(INFINITY);
  json.EndArray();
  EXPECT_EQ(json.text(), "[0.1,-1e+300,3,-9223372036854775808,null,null]");
}

}  // namespace
}  // namespace annulus::client
